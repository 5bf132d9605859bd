"""What grows: the length of a session, and the number of sessions."""
