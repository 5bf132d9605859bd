"""The web inspector: a page on the person's own machine, and one file that holds a session."""
