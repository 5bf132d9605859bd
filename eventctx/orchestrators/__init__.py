"""Orchestrators: turns of an agent, with every step in the log and told to hooks."""
