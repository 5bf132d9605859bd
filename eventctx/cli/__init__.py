"""The command line: a thin layer of reading and showing on top of the engine."""
