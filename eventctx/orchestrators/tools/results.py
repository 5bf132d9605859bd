"""What a tool returned, as the text that a model is told."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

MAX_REPR: Final = 20_000
"""Characters of a value that JSON cannot hold."""

NOTHING: Final = "(no output)"
"""What a model is told of None and of an empty text, which some APIs refuse."""

_FIELDS: Final = frozenset(("success", "output", "error", "content"))
"""Those of Amplifier's ``ToolResult``."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Told(NamedTuple):
    """The text for the model, and whether it tells of a failure."""

    text: str
    is_error: bool = False


def told(value: Any) -> Told:
    """The text of any value. Never raises; never shortens what JSON or a text can hold.

    Of an Amplifier ``ToolResult`` it is ``get_serialized_output()``, a failure when ``success``
    is false; also where a hook made a dict of it.
    """
    serialized = getattr(value, "get_serialized_output", None)
    if callable(serialized):
        failed = getattr(value, "success", True) is False
        try:
            return Told(_sound(str(serialized())), failed)
        except Exception:
            return Told(_shown(getattr(value, "output", value)), failed)
    return Told(_text(value))


def told_by_hook(value: Any) -> Told:
    """The text of a result that a hook put in place of another's, as ``presented`` shows them."""
    if not isinstance(value, dict) or not value.keys() <= _FIELDS or "output" not in value:
        return told(value)
    failed = value.get("success") is False
    output = value["output"]
    return Told(_text(value.get("error") if output is None and failed else output), failed)


def presented(value: Any) -> Any:
    """A tool's result in a hook's payload: JSON values, of a ``ToolResult`` its fields.

    Nothing but these, so that a payload that comes back from a host can be compared with it.
    """
    for method in ("to_dict", "model_dump"):
        dump = getattr(value, method, None)
        if callable(dump):
            try:
                return _plain(dump())
            except Exception:
                return _shown(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(value)
    try:
        return _plain(value)
    except Exception:
        return _shown(value)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _sound(value)
    return json.loads(_sound(_json(value)))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_builtin)


def _builtin(value: Any) -> Any:
    """What JSON has no word for: structs and dates as msgspec writes them, decimals as text."""
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
        return _shown(value)


def _shown(value: Any) -> str:
    """A value by its ``repr``, as far as it has one."""
    try:
        shown = repr(value)
    except Exception:
        shown = f"(a {type(value).__name__} that cannot be shown)"
    more = len(shown) - MAX_REPR
    return _sound(shown[:MAX_REPR]) + (f"… ({more:,} characters more)" if more > 0 else "")


def _sound(text: str) -> str:
    """Text that UTF-8 can hold: names of files may come with lone surrogates."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
