"""A host's hooks: the events of a turn that they get, and the reader of their answers."""
