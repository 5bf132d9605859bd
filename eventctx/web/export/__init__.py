"""One self-contained file of a session, from the base install."""
