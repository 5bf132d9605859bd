"""The inspector: a server on the person's own machine, and the page that it serves."""
