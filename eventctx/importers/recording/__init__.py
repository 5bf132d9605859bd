"""From items to records of a session."""
