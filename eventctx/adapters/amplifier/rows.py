"""A host's message as a dict that can be stored, and a stored one as hosts read it.

Hosts put any value into a message: a provider's state, pydantic models, times. A context manager
that refused such a message would end the turn. So values that JSON cannot hold are converted to
JSON values, and a warning is logged.

Hosts that replay a transcript at its own speed read ``metadata.timestamp``. The log has the time of
every record, so nothing is stored: a row gets its time on the way out, in the form that
context-simple gives it. ``session/reconcile.py`` ignores times when such a row comes back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from math import isfinite
from typing import Any, Final

from eventctx.errors import InvalidMessage
from eventctx.messages.parts import role_of

MAX_DEPTH: Final = 100
"""Levels of nesting that are kept; a deeper value becomes its text."""

_LARGEST: Final = 2**63

_log = logging.getLogger("eventctx.adapters.amplifier")


def as_dict(message: object) -> Any:
    """The message, as a dict if it is a pydantic model."""
    if isinstance(message, dict):
        return message
    dump = getattr(message, "model_dump", None)
    return dump() if callable(dump) else message


def converted_to_json(message: Any, error: InvalidMessage) -> dict[str, Any]:
    """The message, with values that JSON cannot hold converted to texts and lists.

    Raises ``error`` for a value that is no message.
    """
    if not isinstance(message, Mapping) or role_of(dict(message)) is None:
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
        # The object is foreign code, so ``str`` may raise anything.
        text = f"[{type(value).__name__}]"
    return text_of(text)


def text_of(text: str) -> str:
    """A text of any class as one that UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode()


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def stamped(timed: Iterable[tuple[dict[str, Any], int]]) -> list[dict[str, Any]]:
    """The rows, each with the time (UTC nanoseconds) of its record if it has none of its own."""
    return [_stamped(row, time) for row, time in timed]


def _stamped(row: dict[str, Any], time: int) -> dict[str, Any]:
    metadata = row.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict) or metadata.get("timestamp") or row.get("timestamp"):
        return row
    at = (_EPOCH + timedelta(microseconds=time // 1_000)).isoformat(timespec="milliseconds")
    return {**row, "metadata": {**metadata, "timestamp": at}}
