"""Keeps the log evidence: erasure, deletion, and receipts of where each session stands."""
