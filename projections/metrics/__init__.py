"""Metrics as a fold over records."""
