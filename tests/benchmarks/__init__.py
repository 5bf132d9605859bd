"""The benchmark, ``python -m tests.benchmarks``; docs/reference/benchmarks.md has its modules."""
