"""Neighbours' ways to keep a view small, by their own packages: each in a process of its own."""
