"""Values in PostgreSQL's binary format, as parameters of a statement.

Texts: PostgreSQL stores no NUL character, so one is written as ``\\0``, and a backslash as two.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

BOOL: Final = 16
BYTEA: Final = 17
INT8: Final = 20
INT4: Final = 23
TEXT: Final = 25
UUID: Final = 2950
BYTEAS: Final = 1001
INT4S: Final = 1007
TEXTS: Final = 1009
INT8S: Final = 1016
UUIDS: Final = 2951

_ELEMENT: Final = {BYTEAS: BYTEA, INT4S: INT4, TEXTS: TEXT, INT8S: INT8, UUIDS: UUID}
_EMPTY: Final = struct.Struct(">iiI")
_HEADER: Final = struct.Struct(">iiIii")
_LENGTH: Final = struct.Struct(">i")
_INT4: Final = struct.Struct(">i")
_INT8: Final = struct.Struct(">q")
_SIZED_INT4: Final = struct.Struct(">ii")
_SIZED_INT8: Final = struct.Struct(">iq")
_NULL: Final = b"\xff\xff\xff\xff"


def int8(value: int) -> bytes:
    """A bigint."""
    return _INT8.pack(value)


def int4(value: int) -> bytes:
    """An integer."""
    return _INT4.pack(value)


def text(value: str) -> bytes:
    """A text."""
    encoded = value.encode()
    if b"\\" in encoded or b"\0" in encoded:
        return encoded.replace(b"\\", b"\\\\").replace(b"\0", b"\\0")
    return encoded


def from_text(value: str) -> str:
    """The text that ``text`` encoded."""
    if "\\" not in value:
        return value
    return "\\".join([part.replace("\\0", "\0") for part in value.split("\\\\")])


def optional_text(value: str | None) -> bytes | None:
    """A text, or null."""
    return None if value is None else text(value)


def int8s(values: Iterable[int | None]) -> bytes:
    """An array of bigint."""
    pack = _SIZED_INT8.pack
    return _joined(INT8S, [_NULL if value is None else pack(8, value) for value in values])


def int4s(values: Iterable[int]) -> bytes:
    """An array of integer."""
    pack = _SIZED_INT4.pack
    return _joined(INT4S, [pack(4, value) for value in values])


def blobs(kind: int, values: Sequence[bytes | None]) -> bytes:
    """An array of bytea, text or uuid, whose elements are in their own format already."""
    pack = _LENGTH.pack
    return _joined(kind, [_NULL if value is None else pack(len(value)) + value for value in values])


def _joined(kind: int, parts: list[bytes]) -> bytes:
    if not parts:
        return _EMPTY.pack(0, 0, _ELEMENT[kind])
    return _HEADER.pack(1, 1, _ELEMENT[kind], len(parts), 1) + b"".join(parts)
