"""Adapters: the context manager as a module of other agent frameworks, one folder a host."""
