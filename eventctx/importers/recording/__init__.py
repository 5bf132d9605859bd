"""Recording an import: a parser's items become records of a session."""
