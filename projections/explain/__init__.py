"""What became of a message, and what two views differ in."""
