"""Commands that an agent's program starts, and no person types."""
