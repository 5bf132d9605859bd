"""JSON of messages, in two forms: the stored bytes of a body, and the canonical text for digests.

Invariant: a body decodes to the message that was encoded, exactly; what JSON cannot hold is refused
and never changed on the way.
"""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from typing import Any, Final

import msgspec

from eventctx.errors import DecodeError, InvalidMessage

_encoder = msgspec.json.Encoder()
_json = msgspec.json.Decoder()

MAX_DEPTH = 200
"""Deepest nesting of a message; the decoders of most hosts give up not far above."""

MAX_READ_DEPTH = 256
"""Deepest nesting of JSON that is read: a message, and the line of a file around it."""


class NotJson(DecodeError, msgspec.DecodeError):
    """Bytes that are no JSON, or JSON that is nested deeper than is read."""


def encode_message(message: object) -> bytes:
    """The stored body of a message: UTF-8 JSON in the dict's own key order.

    The walk is strict because msgspec alone would turn NaN into null, tuples into lists and dates
    into strings without a word: string keys; str, bool, None, int, finite float, list and dict
    values; nothing else. A subclass of str, int or float counts as its base (``plain_message``).
    Raises InvalidMessage with the path to the first value that is refused.
    """
    return encode_plain(plain_message(message))


def may_be_too_deep(data: bytes | str, limit: int = MAX_DEPTH) -> bool:
    """Whether JSON text may be nested deeper than ``limit``, told without a walk."""
    if isinstance(data, str):
        return data.count("[") + data.count("{") > limit
    return data.count(b"[") + data.count(b"{") > limit


def is_deeper(value: Any, limit: int) -> bool:
    """Whether a decoded value has more than ``limit`` levels."""
    waiting = [(value, 1)]
    while waiting:
        one, depth = waiting.pop()
        if type(one) is dict or type(one) is list:
            if depth > limit:
                return True
            inner = one.values() if type(one) is dict else one
            waiting += [(i, depth + 1) for i in inner if type(i) is dict or type(i) is list]
    return False


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
        raise InvalidMessage("$", _describe(message), "a dict")
    if _is_plain(message):
        return message
    _refuse(message)
    return _of_base_types(message)


def decode_body(data: bytes) -> Any:
    """The value of a body; a new object on every call. Raises NotJson."""
    return decode_json(data)


def decode_json(text: bytes | str, limit: int = MAX_READ_DEPTH) -> Any:
    """The value of JSON that anybody may have written, of at most ``limit`` levels.

    Raises NotJson, and no other error, whatever the text is.
    """
    value = _decode(text, limit)
    if _is_too_deep(value, text, limit):
        raise _too_deep(limit)
    return value


def _decode(text: bytes | str, limit: int) -> Any:
    try:
        return _json.decode(text)
    except RecursionError as error:
        raise _too_deep(limit) from error
    except UnicodeError as error:
        raise NotJson(f"expected text in UTF-8: {error}") from error
    except msgspec.DecodeError as error:
        raise NotJson(str(error)) from error


def _is_too_deep(value: Any, text: bytes | str, limit: int = MAX_READ_DEPTH) -> bool:
    return may_be_too_deep(text, limit) and is_deeper(value, limit)


def _too_deep(limit: int) -> NotJson:
    return NotJson(f"expected JSON of at most {limit} levels, found deeper nesting")


MANY = 1_000
"""Messages decoded at once for which the cyclic garbage collector is paused."""

PASS = 64
"""Messages decoded in one pass: few enough that the joined text stays in the processor's cache, and
that its memory is reused instead of requested from the system every time."""


def decode_bodies(parts: list[bytes]) -> list[Any]:
    """Decode many bodies in few passes, which is cheaper than one by one.

    Raises NotJson.
    """
    messages: list[Any] = []
    with pause_collector(len(parts)):
        for first in range(0, len(parts), PASS):
            some = parts[first : first + PASS]
            joined = b"[" + b",".join(some) + b"]"
            found = _decode(joined, MAX_READ_DEPTH)
            # Most passes together have fewer brackets than one message may have levels.
            if may_be_too_deep(joined, MAX_READ_DEPTH) and any(map(_is_too_deep, found, some)):
                raise _too_deep(MAX_READ_DEPTH)
            messages += found
    return messages


@contextmanager
def pause_collector(messages: int) -> Iterator[None]:
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


# No walk recurses: a caller's stack may be deep already, and a message may be nested without end.


def _is_plain(message: dict[Any, Any]) -> bool:
    """The fast pass: true when the walk below would find nothing. It builds no paths."""
    waiting: list[tuple[Any, int]] = [(message, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return False
        items = value
        if type(value) is dict:
            for key in value:
                if type(key) is not str or not (key.isascii() or _encodes(key)):
                    return False
            items = value.values()
        for item in items:
            kind = type(item)
            if kind is str:
                if not (item.isascii() or _encodes(item)):
                    return False
            elif kind is dict or kind is list:
                waiting.append((item, depth + 1))
            elif not _is_plain_scalar(item):
                return False
    return True


def _is_plain_scalar(value: Any) -> bool:
    kind = type(value)
    if kind is float:
        return math.isfinite(value)
    if kind is int:
        return bool(_INT_MIN <= value <= _INT_MAX)
    return kind is bool or value is None


def _refuse(message: dict[Any, Any]) -> None:
    """Raise InvalidMessage with the path of the first thing that cannot be stored."""
    levels: list[Iterator[tuple[str, Any]]] = [iter([("$", message)])]
    while levels:
        path, value = next(levels[-1], ("", levels))
        if value is levels:
            levels.pop()
        elif isinstance(value, dict | list):
            if len(levels) > MAX_DEPTH:
                raise InvalidMessage(path, "deeper nesting", f"at most {MAX_DEPTH} levels")
            if type(value) is dict:
                levels.append(_check_items(value, path))
            elif type(value) is list:
                levels.append(zip(_places(path), value, strict=False))
            else:
                raise _refused_scalar(value, path)
        elif isinstance(value, str):
            if not _encodes(str.__str__(value)):
                raise InvalidMessage(path, "a lone surrogate", "text that UTF-8 can hold")
        elif not _is_plain_scalar(_scalar_of_base_type(value)):
            raise _refused_scalar(value, path)


def _check_items(value: dict[Any, Any], path: str) -> Iterator[tuple[str, Any]]:
    """The values of a dict with their paths. Raises InvalidMessage for a key."""
    names: set[str] = set()
    for key, item in value.items():
        if not isinstance(key, str):
            raise InvalidMessage(path, f"the key {key!r} ({_describe(key)})", "string keys")
        name = str.__str__(key)
        if not _encodes(name):
            raise InvalidMessage(path, "a key with a lone surrogate", "text UTF-8 can hold")
        if name in names:
            raise InvalidMessage(path, f"the key {name!r} twice", "every key once")
        names.add(name)
        yield f"{path}.{name}", item


def _places(path: str) -> Iterator[str]:
    return (f"{path}[{index}]" for index in count())


def _of_base_types(message: dict[str, Any]) -> dict[str, Any]:
    """A new message without subclasses of str, int and float.

    The base types' own methods make the copy, since ``str()`` of an enum is its name.
    """
    made: dict[str, Any] = {}
    waiting: list[tuple[Any, Any]] = [(message, made)]

    def copied(item: Any) -> Any:
        if type(item) is not dict and type(item) is not list:
            return _scalar_of_base_type(item)
        copy: Any = type(item)()
        waiting.append((item, copy))
        return copy

    while waiting:
        value, copy = waiting.pop()
        if type(value) is dict:
            copy.update({str.__str__(key): copied(item) for key, item in value.items()})
        else:
            copy.extend([copied(item) for item in value])
    return made


def _scalar_of_base_type(value: Any) -> Any:
    if type(value) is bool or value is None:
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
    return InvalidMessage(path, _describe(value), kinds)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _describe(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if hasattr(value, "__await__"):
        return f"a {type(value).__name__} that was not awaited (write `await` before it)"
    return f"a {type(value).__name__}"


# -- the canonical form of what was sent ---------------------------------------------------------
# The rule is that of Claude Code 2.1.330, read from its transcripts and checked against the
# requests that a server received: SHA-256 of the JSON with sorted keys and without spaces, without
# any ``cache_control``. Of a transcript's message role and content are sent; a content that is a
# text counts as one text block. Two messages with one digest are the same for the model. JSON is
# written as JavaScript writes it, which made the digests that are compared: keys in the order of
# their UTF-16 units, numbers in its own shortest form.

RULE: Final = "claude-code-1"
"""The name of this rule in the log."""

_text = json.encoder.encode_basestring
_CONSTANTS: Final = {None: "null", True: "true", False: "false"}
_EXPONENT_FROM, _EXPONENT_BELOW = 21, -7


def canonical(value: Any) -> str:
    """The canonical JSON of a decoded value; any ``cache_control`` in it is left out."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        keys = [key for key in value if key != "cache_control"]
        keys.sort(key=None if "".join(keys).isascii() else _units)
        return "{" + ",".join([f"{_text(key)}:{canonical(value[key])}" for key in keys]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, float):
        return _number(value)
    return _CONSTANTS[value] if value is None or isinstance(value, bool) else json.dumps(value)


def digest_of(value: Any) -> bytes:
    """SHA-256 of the canonical form. A surrogate that is no text counts as U+FFFD."""
    return sha256(canonical(value).encode("utf-8", "replace")).digest()


def as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """The parts of a stored message that a request holds: its role and its content."""
    return {key: message[key] for key in ("role", "content") if key in message}


def message_digest(message: dict[str, Any]) -> bytes:
    """The digest of a transcript's message as it is sent."""
    return sent_digest(as_sent(message))


def sent_digest(message: dict[str, Any]) -> bytes:
    """The digest of a message of a request, whatever fields it was sent with."""
    content = message.get("content")
    if isinstance(content, str):
        message = {**message, "content": [{"type": "text", "text": content}]}
    return digest_of(message)


def _units(key: str) -> bytes:
    # Code points and UTF-16 units give the same order, but for characters beyond the first plane.
    return key.encode("utf-16-be", "surrogatepass")


def _number(value: float) -> str:
    """A float as JavaScript's ``String(value)`` writes it (ECMA-262, Number::toString)."""
    sign = "-" if value < 0 else ""
    digits, _, power = f"{abs(value)!r}".partition("e")
    whole, _, fraction = digits.partition(".")
    shift = int(power or 0) + len(whole)
    figures = (whole + fraction).lstrip("0")
    shift -= len(whole + fraction) - len(figures)
    figures = figures.rstrip("0")
    if not figures:
        return "0"
    if len(figures) <= shift <= _EXPONENT_FROM:
        return sign + figures + "0" * (shift - len(figures))
    if 0 < shift <= _EXPONENT_FROM:
        return f"{sign}{figures[:shift]}.{figures[shift:]}"
    if _EXPONENT_BELOW < shift - 1 < 0 or shift == 0:
        return f"{sign}0.{'0' * -shift}{figures}"
    exponent = f"e{'+' if shift > 0 else '-'}{abs(shift - 1)}"
    return sign + figures[0] + (f".{figures[1:]}" if len(figures) > 1 else "") + exponent
