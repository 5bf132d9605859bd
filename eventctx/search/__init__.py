"""Recall: the full-text index over all messages, its search, and the recall tool for an agent."""
