"""Turns drafts to rows, and rows to records and bodies.

Hex ids are stored as the bytes they encode. Bodies are read by their addresses with few queries,
however they lie in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import apsw

from eventctx.errors import LogCorrupted
from eventctx.log.record import Body, Draft, Record
from eventctx.log.store import Address

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


def pack_id(text: str | None) -> str | bytes | None:
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
        pack_id(draft.turn_id),
        pack_id(draft.span_id),
        pack_id(draft.parent_span_id),
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


def _check_types(row: Row, stream: str | None) -> None:
    """Raise LogCorrupted for a row that no release wrote."""
    types = tuple(map(type, row))
    signature = bool(row[13]), types
    if signature in _known:
        return
    problem = ""
    for name, found, allowed in zip(_COLUMNS, types, _EXPECTED, strict=True):
        if found not in allowed:
            problem = problem or f"the column {name} holds a {found.__name__}"
    if row[13] and not (types[14] is bytes and types[15] is bytes):
        problem = problem or "there is a body without a digest or facts"
    if problem:
        position = row[2] if type(row[2]) is int else -1
        raise LogCorrupted(stream or "", position, f"the record's row is damaged: {problem}")
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
    reads the bodies after the first of ``count``. Raises LogCorrupted for a row that no release
    wrote, ValueError for one that cannot be read.
    """
    fixed = name_of if isinstance(name_of, str) else None
    known: dict[int, str] = {}
    for row in rows:
        _check_types(row, fixed)
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
        type_name = known.get(kind) or known.setdefault(kind, types(kind))
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


_LONG_RUN: Final = 8
"""Neighbours that are worth a query of their own: it costs as much as to look up eight bodies."""

_MOST_SCATTERED: Final = 10_000
"""Bodies that are looked up by one query; their positions are its text."""

_BODY_COLUMNS: Final = "body_digest, facts, salt, data, position"

_NEIGHBOURS: Final = (
    f"SELECT {_BODY_COLUMNS} FROM records "  # noqa: S608
    "WHERE stream=? AND position BETWEEN ? AND ? AND bodies > 0 ORDER BY position"
)

# A cross join is never reordered, so the rows come in the order of the positions asked for.
_SCATTERED: Final = (
    f"SELECT {_BODY_COLUMNS} FROM json_each(?) wanted CROSS JOIN records "  # noqa: S608
    "WHERE stream=? AND position=wanted.value AND bodies > 0"
)

_FURTHER: Final = (
    "SELECT b.digest, b.facts, b.salt, b.data, b.id - (r.pos << 20) FROM records r "
    "CROSS JOIN bodies b WHERE r.stream=? AND r.position=? "
    "AND b.id BETWEEN (r.pos << 20) + ? AND (r.pos << 20) + min(?, r.bodies - 1) ORDER BY b.id"
)


class _Query(NamedTuple):
    """A query for the bodies ``wanted``; its last column is the field ``axis`` of their address."""

    sql: str
    bindings: tuple[Any, ...]
    wanted: Sequence[Address]
    axis: int


def bodies_at(
    connection: apsw.Connection,
    stream: str,
    lineage: Sequence[OwnedRange],
    addresses: Sequence[Address],
) -> list[Body]:
    """The bodies at ``addresses``, in that order. Raises LogCorrupted."""
    found: list[Body] = []
    for query in _queries(stream, lineage, addresses):
        _add(found, connection, stream, query)
    return found


def _queries(
    stream: str, lineage: Sequence[OwnedRange], addresses: Sequence[Address]
) -> Iterator[_Query]:
    """Queries for all addresses in order. Raises LogCorrupted for one that can have no body.

    Neighbours in the log have a query of their own where they are many, and share one with other
    bodies of first place where they are few.
    """
    start = scattered = 0  # addresses from ``scattered`` to ``start`` wait for their query
    owner = -1
    while start < len(addresses):
        position, index = addresses[start]
        segment = next((one for one in lineage if one.first <= position <= one.last), None)
        if segment is None or index < 0:
            break
        end = _run_end(addresses, start, segment.last)
        alone = index > 0 or end - start >= _LONG_RUN
        if alone or segment.owner != owner or start - scattered >= _MOST_SCATTERED:
            yield from _looked_up(owner, addresses[scattered:start])
            scattered, owner = start, segment.owner
        if alone:
            yield _run(owner, addresses[start:end])
            scattered = end
        start = end
    yield from _looked_up(owner, addresses[scattered:start])
    if start < len(addresses):
        raise _none_at(stream, addresses[start])


def _run_end(addresses: Sequence[Address], start: int, last: int) -> int:
    """The place after the neighbours from ``start`` on, of a segment that ends at ``last``."""
    position, index = addresses[start]
    end, count = start + 1, len(addresses)
    if index:
        while end < count and addresses[end] == (position, index + end - start):
            end += 1
        return end
    until = min(count, start + 1 + last - position)
    while end < until and addresses[end] == (position + end - start, 0):
        end += 1
    return end


def _run(owner: int, wanted: Sequence[Address]) -> _Query:
    position, index = wanted[0]
    if index:
        return _Query(_FURTHER, (owner, position, index, wanted[-1].index), wanted, 1)
    return _Query(_NEIGHBOURS, (owner, position, wanted[-1].position), wanted, 0)


def _looked_up(owner: int, wanted: Sequence[Address]) -> Iterator[_Query]:
    if wanted:
        positions = str([position for position, _ in wanted])
        yield _Query(_SCATTERED, (positions, owner), wanted, 0)


def _add(found: list[Body], connection: apsw.Connection, stream: str, query: _Query) -> None:
    """Add a query's bodies to ``found``. Raises LogCorrupted.

    Each row is let go at once: thousands of tuples would keep the cyclic garbage collector busy.
    """
    before = len(found)
    axis = query.axis
    cursor = connection.cursor()
    try:
        rows = cursor.execute(query.sql, query.bindings)
        for address, (digest, facts, salt, data, place) in zip(query.wanted, rows, strict=False):
            if place != address[axis]:
                raise _none_at(stream, address)
            if type(digest) is type(facts) is type(salt) is type(data) is bytes:
                found.append(Body(digest, facts, data, salt))  # nearly all
                continue
            try:
                found.append(body_from((digest, facts, salt, data)))
            except ValueError as error:
                raise LogCorrupted(
                    stream, address.position, f"the row is damaged: {error}"
                ) from error
    finally:
        cursor.close(True)  # a cursor left open would keep the log from being checkpointed
    read = len(found) - before
    if read < len(query.wanted):
        raise _none_at(stream, query.wanted[read])


def _none_at(stream: str, address: Address) -> LogCorrupted:
    return LogCorrupted(stream, address.position, f"expected a body {address.index}, found none")
