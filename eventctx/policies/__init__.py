"""Compaction policies: pure functions from what is in view to a proposal, one strategy a file."""
