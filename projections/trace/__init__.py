"""Spans as folds over records, with and without contents, and their export formats."""
