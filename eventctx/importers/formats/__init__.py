"""One format of recorded sessions a file, or a few files where it is large."""
