"""The commands, each in the module of what it does."""
