"""Parameters in PostgreSQL's binary format, and the server's rows as records and bodies.

Texts: PostgreSQL stores no NUL character, so one is written as ``\\0``, and a backslash as two.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from eventctx.errors import LogCorrupted
from eventctx.log.record import Body, Record
from eventctx.log.store import StreamInfo

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
    if value is None or "\\" in value or "\0" in value:
        return None if value is None else text(value)
    return value.encode()


def int8s(values: Iterable[int | None]) -> bytes:
    """An array of bigint."""
    pack = _SIZED_INT8.pack
    return _join(INT8S, [_NULL if value is None else pack(8, value) for value in values])


def int4s(values: Iterable[int]) -> bytes:
    """An array of integer."""
    pack = _SIZED_INT4.pack
    return _join(INT4S, [pack(4, value) for value in values])


def blobs(kind: int, values: Sequence[bytes | None]) -> bytes:
    """An array of bytea, text or uuid, whose elements are in their own format already."""
    pack = _LENGTH.pack
    return _join(kind, [_NULL if value is None else pack(len(value)) + value for value in values])


def _join(kind: int, parts: list[bytes]) -> bytes:
    if not parts:
        return _EMPTY.pack(0, 0, _ELEMENT[kind])
    return _HEADER.pack(1, 1, _ELEMENT[kind], len(parts), 1) + b"".join(parts)


Row = tuple[Any, ...]

_ENVELOPE: Final = (
    "r.pos, r.stream, r.position, r.id, r.type, r.version, r.time, r.iteration, r.turn, r.span, "
    "r.parent_span, r.digest, r.payload, r.bodies, r.body_digest, r.facts, "
)
WITH_DATA: Final = _ENVELOPE + "r.salt, r.data"
"""Columns of a record with its first body's content."""
WITHOUT_DATA: Final = _ENVELOPE + "r.salt IS NULL AND r.data IS NULL, NULL::bytea"
"""The same without reading the data; in place of the salt, whether the body was erased."""

BODY_WITH_DATA: Final = "b.digest, b.facts, b.salt, b.data"
BODY_WITHOUT_DATA: Final = "b.digest, b.facts, b.salt IS NULL AND b.data IS NULL, NULL::bytea"


def body_from(digest: bytes, facts: bytes, salt: bytes | bool | None, data: bytes | None) -> Body:
    """A body; the salt may be whether it was erased, of a row that was read without data."""
    if type(salt) is bytes:
        return Body(digest, facts, data, salt)
    # Contents without a salt were not erased: an erasure takes both.
    return Body(digest, facts, data, None, salt is not False and data is None)


def records_from(
    rows: Sequence[Row],
    stream: str | None,
    name_of: Callable[[int], str],
    types: Mapping[int, str],
    further: Mapping[int, list[Body]],
) -> list[Record]:
    """Records of rows in the columns WITH_DATA or WITHOUT_DATA.

    ``stream`` is the name under which they are read; None: each one's own. ``further`` are the
    bodies after the first, by global position. Raises LogCorrupted.
    """
    found: list[Record] = []
    for (
        pos, owner, position, event_id, kind, version, time, iteration, turn, span, parent,
        digest, payload, count, body_digest, facts, salt, data,
    ) in rows:  # fmt: skip
        if count == 0:
            bodies: tuple[Body, ...] = ()
        else:
            if body_digest is None or facts is None:
                raise LogCorrupted(stream or name_of(owner), position, "its content has no digest")
            bodies = (body_from(body_digest, facts, salt, data),)
            if count > 1:
                bodies += tuple(further.get(pos, ()))
                if len(bodies) != count:
                    raise LogCorrupted(
                        stream or name_of(owner),
                        position,
                        f"expected {count} contents, found {len(bodies)}",
                    )
        type_name = types.get(kind)
        if type_name is None:
            raise LogCorrupted(
                stream or name_of(owner), position, f"its type {kind} has no name any more"
            )
        found.append(
            Record(
                name_of(owner) if stream is None else stream,
                position,
                pos,
                event_id,
                type_name,
                version,
                time,
                payload,
                bodies,
                turn if turn is None else from_text(turn),
                span if span is None else from_text(span),
                parent if parent is None else from_text(parent),
                iteration,
                digest,
            )
        )
    return found


def info_from(row: Row) -> StreamInfo:
    """A stream, of ``queries.HEADS``; one whose records are gone has the head -1 and no digest."""
    _, name, head, digest, created, parent, forked_at, deleted = row
    return StreamInfo(
        from_text(name),
        -1 if head is None else head,
        b"" if digest is None else digest,
        created,
        None if parent is None else from_text(parent),
        forked_at,
        deleted,
    )
