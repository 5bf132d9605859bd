"""A host's hooks: what they are told of a turn, and how their answers are read."""
