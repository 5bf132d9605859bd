"""Questions to a log, and their answers: structs whose fields are the keys of their JSON."""
