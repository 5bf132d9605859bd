"""Turns drafts to rows, and rows to records. Hex ids are stored as the bytes they encode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import apsw

from eventctx.errors import LogCorrupted
from eventctx.log.record import Body, Draft, Record

Row = tuple[Any, ...]


class OwnedRange(NamedTuple):
    """Positions ``first`` to ``last`` of a stream are rows of the stream with row id ``owner``."""

    owner: int
    first: int
    last: int


INSERT_RECORD = "INSERT INTO records VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
INSERT_BODY = "INSERT INTO bodies VALUES(?,?,?,?,?)"

_ENVELOPE = (
    "pos,stream,position,id,type,version,time,iteration,turn,span,parent_span,digest,payload,"
    "bodies,body_digest,facts,"
)
WITH_DATA = _ENVELOPE + "salt,data"
"""Columns of a record with its first body's content."""
WITHOUT_DATA = _ENVELOPE + "salt IS NULL AND typeof(data)='null',NULL"
"""The same without reading the data; in place of the salt, 1 if the body was erased, else 0."""

BODY_WITH_DATA = "digest,facts,salt,data"
BODY_WITHOUT_DATA = "digest,facts,salt IS NULL AND typeof(data)='null',NULL"

_BODY_BITS = 20
_HEX_LENGTHS = frozenset({16, 32})


def body_id(global_position: int, index: int) -> int:
    """The row id of body ``index`` (from 1) of a record in the table of further bodies."""
    return (global_position << _BODY_BITS) + index


def packed(text: str | None) -> str | bytes | None:
    """An id of 16 or 32 lowercase hex digits as bytes, half its size; other texts unchanged."""
    if text is None or len(text) not in _HEX_LENGTHS:
        return text
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return text
    return raw if raw.hex() == text else text


def record_row(
    draft: Draft, stream: int, position: int, global_position: int, kind: int, digest: bytes
) -> Row:
    """A row for ``INSERT_RECORD``; ``stream`` and ``kind`` are row ids."""
    bodies = draft.bodies
    first = (bodies[0].digest, bodies[0].salt, bodies[0].facts, bodies[0].data) if bodies else _NONE
    return (
        global_position,
        stream,
        position,
        draft.id,
        kind,
        draft.version,
        draft.time,
        draft.iteration,
        packed(draft.turn_id),
        packed(draft.span_id),
        packed(draft.parent_span_id),
        digest,
        draft.payload,
        len(bodies),
        *first,
    )


_NONE = (None, None, None, None)


def body_rows(draft: Draft, global_position: int) -> list[Row]:
    """Rows for ``INSERT_BODY``: all bodies but the first."""
    return [
        (body_id(global_position, index), body.digest, body.salt, body.facts, body.data)
        for index, body in enumerate(draft.bodies)
        if index
    ]


_BLOB = (bytes, type(None))


def body_from(row: Row) -> Body:
    """A body from BODY_WITH_DATA or BODY_WITHOUT_DATA.

    The third column is the salt, or 0 or 1 for a body that was not or was erased.
    """
    digest, facts, salt, data = row
    if type(digest) is not bytes or type(facts) is not bytes:
        raise ValueError(f"expected a body's digest and facts, found {digest!r} and {facts!r}")
    if type(data) not in _BLOB:
        raise ValueError(f"expected a body's contents as bytes, found a {type(data).__name__}")
    if type(salt) is bytes:
        return Body(digest, facts, data, salt)
    # Contents without a salt were not erased: an erasure takes both.
    return Body(digest, facts, data, None, salt != 0 and data is None)


_IDS = (bytes, str, type(None))
_EXPECTED = (
    (int,), (int,), (int,), (bytes,), (int,), (int,), (int,), (int, type(None)), _IDS, _IDS, _IDS,
    (bytes,), (bytes,), (int,), _BLOB, _BLOB, (bytes, int, type(None)), _BLOB,
)  # fmt: skip
_COLUMNS = (*_ENVELOPE.removesuffix(",").split(","), "salt", "data")
_known: set[tuple[bool, tuple[type, ...]]] = set()
"""Whether a row has a body, and its types, where that was found right: very few are met."""


def _check_types(row: Row) -> None:
    """Raise ValueError for a row that no release wrote."""
    types = tuple(map(type, row))
    signature = bool(row[13]), types
    if signature in _known:
        return
    for name, found, allowed in zip(_COLUMNS, types, _EXPECTED, strict=True):
        if found not in allowed:
            raise ValueError(f"the column {name} holds a {found.__name__}")
    if row[13] and not (types[14] is bytes and types[15] is bytes):
        raise ValueError("there is a body without a digest or facts")
    _known.add(signature)


def records_from(
    found: list[Record],
    rows: apsw.Cursor,
    name_of: Callable[[int], str] | str,
    types: Callable[[int], str],
    further: Callable[[int, int], list[Body]],
    size: int,
) -> bool:
    """Add to ``found`` the records of a cursor over WITH_DATA or WITHOUT_DATA.

    Returns whether all rows were read: it stops after ``size`` bytes of data. ``name_of`` is the
    stream's name, or a function that finds it from its row id; ``further(global_position, count)``
    reads the bodies behind the first of ``count``. Raises LogCorrupted for a row that no release
    wrote, ValueError for one that cannot be read.
    """
    fixed = name_of if isinstance(name_of, str) else None
    known: dict[int, str] = {}
    for row in rows:
        try:
            _check_types(row)
        except ValueError as error:
            at = row[2] if type(row[2]) is int else -1
            raise LogCorrupted(fixed or "", at, f"the record's row is damaged: {error}") from error
        (
        pos, stream, position, event_id, kind, version, time, iteration, turn, span, parent,
        digest, payload, count, body_digest, facts, salt, data,
    ) = row  # fmt: skip
        if count == 0:
            bodies: tuple[Body, ...] = ()
        else:
            if count < 0:
                raise ValueError(f"expected a number of contents, found {count}")
            if type(salt) is bytes:
                bodies = (Body(body_digest, facts, data, salt),)
            else:
                bodies = (body_from((body_digest, facts, salt, data)),)
            if data is not None:
                size -= len(data)
            if count > 1:
                bodies += tuple(further(pos, count))
                size -= sum([len(body.data or b"") for body in bodies[1:]])
        type_name = known.get(kind)
        if type_name is None:
            type_name = known[kind] = types(kind)
        found.append(
            Record(
                fixed if fixed is not None else name_of(stream),  # type: ignore[operator]
                position,
                pos,
                event_id,
                type_name,
                version,
                time,
                payload,
                bodies,
                turn.hex() if type(turn) is bytes else turn,
                span.hex() if type(span) is bytes else span,
                parent.hex() if type(parent) is bytes else parent,
                iteration,
                digest,
            )
        )
        if size <= 0:
            return False
    return True
