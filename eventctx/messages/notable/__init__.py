"""The notable things in a message: instructions, decisions, files, commands, and their outcomes."""
