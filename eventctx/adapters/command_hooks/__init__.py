"""Hooks of programs as commands: they import a session, and repeat a person's lost words."""
