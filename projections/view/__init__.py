"""The request view: the messages that a model is sent, folded from the records."""
