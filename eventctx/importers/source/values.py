"""JSON values as other programs write them: read whole, repaired where that is needed.

Two rules hold for every value that leaves this module: its encoding says all that the text says, or
the caller is told that it does not and keeps the text; and it is at most ``MAX_DEPTH`` levels deep,
so that code that walks it needs no guard of its own.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

import msgspec

from eventctx.messages.encoding import MAX_READ_DEPTH, is_deeper, may_be_too_deep

MAX_DEPTH: Final = MAX_READ_DEPTH

BROKEN: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of decoding bytes that are no JSON, no UTF-8, or nested too deeply."""

REPLACED: Final = "text that JSON or UTF-8 cannot hold was replaced"
"""The warning about a repaired row."""

REPEATED: Final = "a key is in it twice; the last one counts, and the text is kept"
"""The warning about a row with two values for one key."""

_TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1

_decode = msgspec.json.Decoder().decode
_pack = msgspec.msgpack.Encoder().encode
encode = msgspec.json.Encoder().encode


class NotWhole(msgspec.DecodeError):
    """JSON that decodes, but to a value that says less than the text, or that is too deep."""


class TooDeep(ValueError):
    """JSON, or what begins like it, with more than ``MAX_DEPTH`` levels."""

    def __init__(self) -> None:
        super().__init__(_TOO_DEEP)


def decode(data: bytes) -> Any:
    """The value of JSON text that needs no repair. Raises one of ``BROKEN``."""
    return decode_and_encode(data)[0]


def decode_and_encode(data: bytes) -> tuple[Any, bytes]:
    """The value of JSON text that needs no repair, and its encoding. Raises one of ``BROKEN``."""
    value = _decode(data)
    if _is_deep(value, data):
        raise NotWhole(_TOO_DEEP)
    try:
        # JSON takes any integer, MessagePack those of 64 bits, and it costs less than a walk.
        _pack(value)
    except OverflowError as error:
        raise NotWhole("an integer beyond 64 bits") from error
    encoded = encode(value)
    if _repeats(data, encoded):
        raise NotWhole(REPEATED)
    return value, encoded


def read_value(data: bytes) -> tuple[Any, str]:
    """The value of JSON text, and a warning where its encoding says less than the text; else "".

    Programs cut texts in the middle of a surrogate pair and write ``\\ud83d`` alone, write NaN, or
    write bytes that are no UTF-8. A lone surrogate becomes U+FFFD, NaN and infinities become null,
    an integer beyond 64 bits becomes text. Of two values for one key the last one is taken. Raises
    ValueError for text that is no JSON at all, or that is nested too deeply.
    """
    try:
        return decode(data), ""
    except BROKEN:
        pass
    try:
        value = json.loads(data.decode("utf-8", errors="replace"))
    except RecursionError as error:
        raise TooDeep from error
    if _is_deep(value, data):
        raise TooDeep
    repaired = _repair(value)
    return repaired, REPEATED if repaired == value and _is_utf8(data) else REPLACED


def read_and_encode(data: bytes) -> tuple[Any, bytes | None, str]:
    """As ``read_value``; between the two the value's encoding, where it needed no repair."""
    try:
        return *decode_and_encode(data), ""
    except BROKEN:
        value, warning = read_value(data)
        return value, None, warning


def may_begin(data: bytes) -> bool:
    """Whether text is no JSON only because its end is missing."""
    try:
        _decode(data.decode("utf-8", errors="replace").encode())  # as ``read_value`` reads it
    except (msgspec.DecodeError, RecursionError) as error:
        return "truncated" in str(error)
    return False


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_deep(value: object, data: bytes) -> bool:
    """Whether a value is nested deeper than ``MAX_DEPTH``. ``data`` is its text."""
    return may_be_too_deep(data, MAX_DEPTH) and is_deeper(value, MAX_DEPTH)


def _repeats(data: bytes, encoded: bytes) -> bool:
    """Whether ``data`` has a key twice. ``encoded`` is the encoding of its value.

    In JSON text a quotation mark is around a string, or escaped in one. So a text has as many
    as its value's encoding, unless a key was dropped with its value, or it has them as ``\\u0022``.
    """
    if data == encoded or (data.count(b'"') == encoded.count(b'"') and b"\\u0022" not in data):
        return False
    try:
        json.loads(data.decode(), object_pairs_hook=_without_repetition)
    except _Repetition:
        return True
    return False


class _Repetition(Exception):
    """An object has a key twice."""


def _without_repetition(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise _Repetition


def json_values(value: Any) -> Any:
    """A value of another notation as JSON can hold it: text keys, and lists.

    Bytes stay bytes, which only the reader of a body knows how to take.
    """
    if isinstance(value, dict):
        return {str(json_values(key)): json_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [json_values(inner) for inner in value]
    if value is None or isinstance(value, str | bool | int | float):
        return _repair(value)
    return value if isinstance(value, bytes) else str(value)


def _repair(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_repair(item) for item in value]
    if isinstance(value, dict):
        return {_repair(key): _repair(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
        return str(value)
    return value
