"""The index of a compacted view: what a person demanded, which files were touched, what left."""
