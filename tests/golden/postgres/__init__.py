"""Frozen stores of every version of the PostgreSQL schema."""
