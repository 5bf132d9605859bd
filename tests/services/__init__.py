"""Real receivers of spans for the tests: Jaeger itself, and one in this process that misbehaves."""
