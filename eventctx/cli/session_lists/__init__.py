"""Sessions as a person names and chooses them."""
