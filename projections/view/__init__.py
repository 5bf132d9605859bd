"""The request view: what a model is sent, folded from the records."""
