"""The benchmark: ``python -m tests.benchmarks``. What it measures: FIGURES.md."""
