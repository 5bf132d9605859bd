"""A host's message as a dict that can be stored.

Hosts put what they like into a message: a provider's state, pydantic models, times. A context
manager that refused it would end the turn, so what JSON cannot hold is told in JSON's words, and
the log says that it was.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import date
from math import isfinite
from typing import Any, Final

from eventctx.errors import InvalidMessage

MAX_DEPTH: Final = 100
"""Levels of nesting that are kept; what is deeper becomes its text."""

_LARGEST: Final = 2**63

_log = logging.getLogger("eventctx.adapters.amplifier")


def as_dict(message: object) -> Any:
    """A message as a dict, where it is a model of the host's."""
    if isinstance(message, dict):
        return message
    dump = getattr(message, "model_dump", None)
    return dump() if callable(dump) else message


def told_in_json(message: Any, error: InvalidMessage) -> dict[str, Any]:
    """The message with what JSON cannot hold made into texts and lists.

    Raises ``error`` for what is no message at all.
    """
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise error
    _log.warning("a message is stored with its values told in JSON: %s", error)
    made: dict[str, Any] = _plain(message, 0)
    return made


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, int):
        return int(value) if -_LARGEST <= value < 2 * _LARGEST else str(value)
    if isinstance(value, float):
        return float(value) if isfinite(value) else str(value)
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        value = dump()
    if depth < MAX_DEPTH:
        if isinstance(value, Mapping):
            return {_text(key): _plain(inner, depth + 1) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [_plain(one, depth + 1) for one in value]
        if isinstance(value, set | frozenset):
            return sorted([_plain(one, depth + 1) for one in value], key=str)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return f"[{len(value):,} bytes]"
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return text_of(value)
    try:
        text = str(value)
    except Exception:
        # Anybody's object may refuse to be shown.
        text = f"[{type(value).__name__}]"
    return text_of(text)


def text_of(text: str) -> str:
    """A text of any class as one that UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()
