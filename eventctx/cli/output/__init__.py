"""What commands share: screens, plain text, JSON, exit codes, and how records are shown."""
