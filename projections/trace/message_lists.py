"""Lists of messages as one attribute: JSON texts in one array, and cut where they are too long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

MAX_CONTENT: Final = 262_144
"""Most characters of one attribute; beyond it, the oldest messages are left out."""


def to_json(value: object) -> str:
    """A value as compact JSON."""
    return msgspec.json.encode(value).decode()


def array(texts: Iterable[str]) -> str:
    """A JSON array of values that are JSON already."""
    return f"[{','.join(texts)}]"


def said(role: str, words: str) -> dict[str, Any]:
    """A message of one text in the form of the conventions."""
    return {"role": role, "parts": [{"type": "text", "content": words}]}


def newest(texts: Sequence[str]) -> list[str]:
    """The last messages, in JSON, that fit into one attribute; one more tells of those left out."""
    kept, size = len(texts), 0
    while kept > 0 and size + len(texts[kept - 1]) <= MAX_CONTENT:
        kept -= 1
        size += len(texts[kept])
    if not kept:
        return list(texts)
    words = f"[{kept} earlier messages are left out of this span; they are in the log]"
    return [to_json(said("system", words)), *texts[kept:]]


NOT_KEPT: Final = to_json(said("user", "[a message left out of this span; the log has it]"))
"""Stands for a message whose text was dropped while it was out of view."""
