"""Spans as folds over records, with and without contents, and the forms they are exported in."""
