"""One message of any dialect, read without changing it: parts, facts, rounds, tokens, bodies."""
