"""The encoding of bodies: messages to stored bytes, strictly, and back, exactly."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from eventctx.errors import InvalidMessage

_encoder = msgspec.json.Encoder()
_json = msgspec.json.Decoder()

MAX_DEPTH = 200
"""Deepest nesting of a message; the decoders of most hosts give up not far above."""


def encode_message(message: object) -> bytes:
    """The stored body of a message: UTF-8 JSON in the dict's own key order.

    The walk is strict because msgspec alone would turn NaN into null, tuples into lists and dates
    into strings without a word: string keys; str, bool, None, int, finite float, list and dict
    values; nothing else. A subclass of str, int or float counts as its base (``plain_message``).
    Raises InvalidMessage with the path to the first value that is refused.
    """
    return encode_plain(plain_message(message))


def may_be_too_deep(data: bytes) -> bool:
    """Whether JSON text may be nested deeper than ``MAX_DEPTH``, told without a walk."""
    return data.count(b"[") + data.count(b"{") > MAX_DEPTH


def encode_plain(message: dict[str, Any]) -> bytes:
    """The stored body of a message that ``plain_message`` returned."""
    return _encoder.encode(message)


def plain_message(message: object) -> dict[str, Any]:
    """The message with texts and numbers of the base types; itself where they are already.

    SDKs put their own texts and numbers into messages (``StrEnum``, ``IntEnum``, LangChain's
    ``TextAccessor``, numpy's ``float64``). Such a value is stored as the text or number that it is,
    whatever its ``str()`` says, in keys, too. Subclasses of list and dict are refused: they may
    show other things to each reader. Raises InvalidMessage.
    """
    if type(message) is not dict:
        raise InvalidMessage("$", _described(message), "a dict")
    if _is_plain(message):
        return message
    _refuse(message, "$", 0)
    made: dict[str, Any] = _of_base_types(message)
    return made


def decode_body(data: bytes) -> Any:
    """The value of a body; a new object on every call. Raises msgspec.DecodeError."""
    try:
        return _json.decode(data)
    except (RecursionError, UnicodeDecodeError) as error:
        raise _no_json(error) from error


def _no_json(error: RecursionError | UnicodeDecodeError) -> msgspec.DecodeError:
    """What msgspec does not raise itself: its own error for bytes that are no JSON."""
    if isinstance(error, UnicodeDecodeError):
        return msgspec.DecodeError(f"expected text in UTF-8: {error}")
    return msgspec.DecodeError("expected at most 200 levels, found deeper nesting")


MANY = 1_000
"""Messages decoded at once for which the cyclic garbage collector is paused."""

PASS = 64
"""Messages decoded in one pass: few enough that the joined text stays in the processor's cache, and
that its memory is reused instead of requested from the system every time."""


def decode_bodies(parts: list[bytes]) -> list[Any]:
    """Decode many bodies in few passes, which is cheaper than one by one.

    Raises msgspec.DecodeError.
    """
    messages: list[Any] = []
    with collector_paused(len(parts)):
        for first in range(0, len(parts), PASS):
            messages += decode_body(b"[" + b",".join(parts[first : first + PASS]) + b"]")
    return messages


@contextmanager
def collector_paused(messages: int) -> Iterator[None]:
    """Pause the cyclic garbage collector while more than ``MANY`` messages are made at once.

    All of them are live objects; the collector would walk them again and again, which takes as long
    as the decoding.
    """
    pause = messages > MANY and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            gc.enable()


_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


def _is_plain(value: Any, depth: int = 0) -> bool:
    """The fast pass: true when the walk below would find nothing. It builds no paths."""
    kind = type(value)
    if kind is str:
        return value.isascii() or _encodes(value)
    if kind is dict:
        if depth >= MAX_DEPTH:
            return False
        for key, item in value.items():
            if type(key) is not str or not (key.isascii() or _encodes(key)):
                return False
            # Most values in a message are short ASCII texts, which skip one call here.
            if type(item) is str and item.isascii():
                continue
            if not _is_plain(item, depth + 1):
                return False
        return True
    if kind is list:
        return depth < MAX_DEPTH and all(_is_plain(item, depth + 1) for item in value)
    return _is_plain_scalar(value)


def _is_plain_scalar(value: Any) -> bool:
    kind = type(value)
    if kind is float:
        return math.isfinite(value)
    if kind is int:
        return bool(_INT_MIN <= value <= _INT_MAX)
    return kind is bool or value is None


def _refuse(value: Any, path: str, depth: int) -> None:
    """Raise InvalidMessage with the path of the first thing that cannot be stored."""
    if isinstance(value, dict | list) and depth >= MAX_DEPTH:
        raise InvalidMessage(path, "deeper nesting", f"at most {MAX_DEPTH} levels")
    if type(value) is dict:
        names: set[str] = set()
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidMessage(path, f"the key {key!r} ({_described(key)})", "string keys")
            name = str.__str__(key)
            if not _encodes(name):
                raise InvalidMessage(path, "a key with a lone surrogate", "text UTF-8 can hold")
            if name in names:
                raise InvalidMessage(path, f"the key {name!r} twice", "every key once")
            names.add(name)
            _refuse(item, f"{path}.{name}", depth + 1)
    elif type(value) is list:
        for index, item in enumerate(value):
            _refuse(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, str):
        if not _encodes(str.__str__(value)):
            raise InvalidMessage(path, "a lone surrogate", "text that UTF-8 can hold")
    elif not _is_plain_scalar(_of_base_types(value)):
        raise _refused_scalar(value, path)


def _of_base_types(value: Any) -> Any:
    """A new value without subclasses of str, int and float; others are left as they are.

    The base types' own methods make the copy, since ``str()`` of an enum is its name.
    """
    kind = type(value)
    if kind is dict:
        return {str.__str__(key): _of_base_types(item) for key, item in value.items()}
    if kind is list:
        return [_of_base_types(item) for item in value]
    if kind is bool or value is None:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__index__(value)
    return float.__float__(value) if isinstance(value, float) else value


def _refused_scalar(value: Any, path: str) -> InvalidMessage:
    if isinstance(value, float):
        return InvalidMessage(path, repr(value), "a finite number")
    if isinstance(value, int):
        return InvalidMessage(path, "an integer beyond 64 bits", "an integer within 64 bits")
    kinds = "str, bool, None, int, float, list or dict"
    return InvalidMessage(path, _described(value), kinds)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _described(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if hasattr(value, "__await__"):
        return f"a {type(value).__name__} that was not awaited (write `await` before it)"
    return f"a {type(value).__name__}"
