"""What many agents need of a store: measured where this machine allows, else computed or simulated.

``python -m tests.benchmarks.scale measure`` measures and writes ``measured.json``; ``... page``
writes the tables of docs/explanation/scale.md from it.
"""
