"""Reads of bodies by their addresses, with few queries however the bodies lie in the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import apsw

from eventctx.errors import LogCorrupted
from eventctx.log.record import Body
from eventctx.log.store import Address
from eventctx.stores.sqlite_rows import OwnedRange, body_from

_LONG_RUN: Final = 8
"""Neighbours that are worth a query of their own: it costs as much as to look up eight bodies."""

_MOST_SCATTERED: Final = 10_000
"""Bodies that are looked up by one query; their positions are its text."""

_COLUMNS: Final = "body_digest, facts, salt, data, position"

_NEIGHBOURS: Final = (
    f"SELECT {_COLUMNS} FROM records "  # noqa: S608
    "WHERE stream=? AND position BETWEEN ? AND ? AND bodies > 0 ORDER BY position"
)

# A cross join is never reordered, so the rows come in the order of the positions asked for.
_SCATTERED: Final = (
    f"SELECT {_COLUMNS} FROM json_each(?) wanted CROSS JOIN records "  # noqa: S608
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
    """The place behind the neighbours from ``start`` on, of a segment that ends at ``last``."""
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
