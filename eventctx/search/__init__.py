"""Recall: the index over what was said, the search in it, and the tool that an agent is given."""
