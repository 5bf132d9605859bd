"""Claude Code's transcripts: their lines, queued messages, answers, and requests as sent."""
