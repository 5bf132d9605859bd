"""The screen of ``replay``: what was said, what a request was sent, what left, and why."""
