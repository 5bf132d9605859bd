"""The write side of one session: its aggregate, its append queue, and its command handlers."""
