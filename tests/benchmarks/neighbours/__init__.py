"""Neighbours that keep conversations: each in a process of its own, in turns with this library."""
