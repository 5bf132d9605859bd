"""A tool's return value, as the text for the model and as JSON for a hook's payload."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.log.turn_recorder import fit_for_log
from eventctx.messages.tool_results import TOOL_RESULT, ToolFailure, failure_of

MAX_KIND: Final = 200
"""Longest name, in characters, of a failure's type."""

MAX_REPR: Final = 20_000
"""Longest text, in characters, of a value that JSON cannot hold."""

NOTHING: Final = "(no output)"
"""The text of None and of an empty text, which some APIs refuse."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class ResultText(NamedTuple):
    """The text for the model, and whether it reports a failure."""

    text: str
    is_error: bool = False


def text_of(value: Any) -> ResultText:
    """The text of any value. Never raises; never shortens a text or a value that JSON can hold.

    The text of an Amplifier ``ToolResult`` is ``get_serialized_output()``; it is a failure when
    ``success`` is false.
    """
    serialized = getattr(value, "get_serialized_output", None)
    if callable(serialized):
        failed = getattr(value, "success", True) is False
        try:
            return ResultText(_sound(str(serialized())), failed)
        except Exception:
            return ResultText(_repr(getattr(value, "output", value)), failed)
    return ResultText(_text(value))


def reported_failure(value: Any) -> ToolFailure | None:
    """The failure that a tool returned rather than raised, short enough for the log. Never raises.

    A ``ToolResult`` and a dict of its form report one by a ``success`` that is false.
    """
    try:
        found = failure_of(value)
    except Exception:  # a value may do anything when it is looked at
        return None
    if found is None:
        return None
    kind = fit_for_log(found.kind, MAX_KIND)
    return ToolFailure(kind, fit_for_log(found.message))


def text_of_replacement(value: Any) -> ResultText:
    """The text of a result that a hook put in place of the tool's.

    A dict with the fields of a ``ToolResult`` is read as one: ``as_payload`` gave it that form.
    """
    if not isinstance(value, dict) or not value.keys() <= TOOL_RESULT or "output" not in value:
        return text_of(value)
    failed = value.get("success") is False
    output = value["output"]
    return ResultText(_text(value.get("error") if output is None and failed else output), failed)


def as_payload(value: Any) -> Any:
    """A tool's result in a hook's payload: JSON values only; a ``ToolResult`` by its fields.

    Only JSON values, so that a payload that comes back from a host can be compared with it.
    """
    for method in ("to_dict", "model_dump"):
        dump = getattr(value, method, None)
        if callable(dump):
            try:
                return _plain(dump())
            except Exception:
                return _repr(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(value)
    try:
        return _plain(value)
    except Exception:
        return _repr(value)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _sound(value)
    return json.loads(_sound(_json(value)))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_builtin)


def _builtin(value: Any) -> Any:
    """A value that JSON lacks: a struct or a date as msgspec writes it, a decimal as text."""
    return str(value) if isinstance(value, Decimal) else msgspec.to_builtins(value)


def _text(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return _sound(str.__str__(value)) or NOTHING
    if isinstance(value, bytes | bytearray | memoryview):
        return f"({len(value):,} bytes that are no text)"
    try:
        return _sound(_json(value))
    except Exception:
        return _repr(value)


def _repr(value: Any) -> str:
    """The ``repr`` of a value, shortened, or a substitute when it raises."""
    try:
        shown = repr(value)
    except Exception:
        shown = f"(a {type(value).__name__} that cannot be shown)"
    more = len(shown) - MAX_REPR
    return _sound(shown[:MAX_REPR]) + (f"… ({more:,} characters more)" if more > 0 else "")


def _sound(text: str) -> str:
    """The text in a form that UTF-8 can hold: file names may hold lone surrogates."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
