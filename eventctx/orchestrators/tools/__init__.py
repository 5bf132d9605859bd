"""Tools: from functions, their arguments, and their results."""
