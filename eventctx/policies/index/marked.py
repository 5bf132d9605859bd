"""Text of a machine as it stands in a view: as data, with a mark before every line."""

from __future__ import annotations

from typing import Final

MARK: Final = "|"
"""The start of every line of a machine's text; no line of the frame begins with it."""


def quoted(text: str) -> str:
    """``text`` with ``MARK`` before every line, whichever line separators it has."""
    return "\n".join([f"{MARK} {line}".rstrip() for line in text.splitlines() or [""]])
