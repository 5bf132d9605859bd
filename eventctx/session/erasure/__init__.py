"""Destroys contents of messages, and whole sessions, and leaves a log that still verifies."""

from __future__ import annotations

from typing import Final

ERASING: Final = "eventctx:erasing"
"""The checkpoint that is 1 while an erasure or a deletion has something left to do.

Every opening of a store looks for it.
"""
