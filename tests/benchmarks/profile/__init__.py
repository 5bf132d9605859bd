"""Where a message's and a request's processor time goes: ``python -m tests.benchmarks.profile``."""
