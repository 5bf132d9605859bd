"""Objects of SDKs, read as plain dicts: the messages in them, and what an API says besides."""
