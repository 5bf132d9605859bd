"""Explanations: the history of a message in the views, and the difference of two views."""
