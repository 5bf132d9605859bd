"""Adapters: the context manager as a module of other agent frameworks, one host a file."""
