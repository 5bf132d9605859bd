"""The read side of a JetStream store."""
