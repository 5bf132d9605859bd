"""Answers about stored views: why a message is in one, what two differ in, what is lost."""
