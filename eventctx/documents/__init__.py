"""Answers as JSON documents with stable keys: what ``--json`` prints is what the server sends."""
