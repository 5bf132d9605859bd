"""The benchmark: ``python -m tests.benchmarks``. What it measures: docs/reference/benchmarks.md."""
