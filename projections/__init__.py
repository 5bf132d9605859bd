"""Pure folds over records: the transcript, the requests to the model, usage, traces, metrics.

A projection is ``initial()`` and ``evolve(state, record)``; its view is frozen. None of them does
I/O, reads a clock or draws a random number: the same records give the same state, live, from a
snapshot, or on another machine.
"""
