"""A session at a glance: messages, requests with their views, compactions, in columns."""
