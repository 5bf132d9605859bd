"""Shared parts of commands: screens, plain text, JSON, exit codes, and the display of records."""
