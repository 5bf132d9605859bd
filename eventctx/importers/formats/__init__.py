"""The formats of recorded sessions, one file for each, or a few files for a large one."""
