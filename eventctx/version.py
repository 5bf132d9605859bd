"""The version of this release; also recorded in every session that it starts."""

__version__ = "0.1.0"
