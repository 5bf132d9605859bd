"""Lengths of media that no library measures for us: pages of a PDF, seconds of a recording."""
