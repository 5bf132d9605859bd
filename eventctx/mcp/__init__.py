"""Answers for the agent itself: a read-only, bounded server of the Model Context Protocol."""
