"""Claude Code: its hooks import a session, and repeat a person's words after a compaction."""
