"""Pure folds over records: what was said, what the model was sent, and what that cost.

A projection is ``initial()`` and ``evolve(state, record)``; its view is frozen. None of them does
I/O, reads a clock or draws a random number: the same records give the same state, live, from a
snapshot, or on another machine.
"""
