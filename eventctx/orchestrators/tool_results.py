"""What a tool returned, as the text that a model is told."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

import msgspec

MAX_REPR: Final = 20_000
"""Characters of a value that JSON cannot hold, and of an exception's words."""

NOTHING: Final = "(no output)"
"""What a model is told of None and of an empty text, which some APIs refuse."""

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
    if isinstance(value, dict) and {"success", "output"} <= value.keys():
        failed = value["success"] is False
        output = value["output"]
        if output is None and failed:
            output = value.get("error")
        return Told(_text(output), failed)
    return Told(_text(value))


def words_of(error: BaseException) -> str:
    """What the model is told of an exception."""
    try:
        words = str(error)
    except Exception:
        words = "(it cannot be shown)"
    return _sound(f"{type(error).__name__}: {words}"[:MAX_REPR])


def presented(value: Any) -> Any:
    """A tool's result in a hook's payload: a ``ToolResult`` as a dict, else what JSON can hold."""
    for method in ("to_dict", "model_dump"):
        dump = getattr(value, method, None)
        if callable(dump):
            try:
                return dump()
            except Exception:
                return _shown(value)
    return value if value is None or isinstance(value, str | int | float | bool) else _text(value)


def _text(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return _sound(value) or NOTHING
    if isinstance(value, bytes | bytearray | memoryview):
        return f"({len(value):,} bytes that are no text)"
    try:
        return _sound(
            json.dumps(value, ensure_ascii=False, allow_nan=False, default=msgspec.to_builtins)
        )
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
