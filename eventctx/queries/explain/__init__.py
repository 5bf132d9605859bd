"""Answers about stored views: why a message is in one, how two differ, which messages are lost."""
