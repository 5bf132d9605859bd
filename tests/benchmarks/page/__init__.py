"""The page of results: ``python -m tests.benchmarks.page RUN.json`` writes it and its pictures."""
