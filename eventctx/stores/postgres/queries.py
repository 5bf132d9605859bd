"""Reads on one connection, for one thread at a time.

A store's stream is read in the order of its positions, which are gapless, so nothing can be missed
there. The order of the whole log ends at the fence (see ``schema.FENCE``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from eventctx.errors import LogCorrupted, StreamNotFound
from eventctx.log.record import Body, Record
from eventctx.log.store import Address, Inspection, Snapshot, StreamInfo
from eventctx.stores.postgres import encoding
from eventctx.stores.postgres.connections import ServerConnection
from eventctx.stores.postgres.encoding import (
    BODY_WITH_DATA,
    BODY_WITHOUT_DATA,
    INT8,
    INT8S,
    TEXT,
    WITH_DATA,
    WITHOUT_DATA,
    body_from,
    info_from,
    int8,
    records_from,
    text,
)
from eventctx.stores.postgres.errors import Refused, naming_damage
from eventctx.stores.postgres.inspection import holders, inspect
from eventctx.stores.postgres.schema import FENCE
from eventctx.stores.postgres.scrubbing import unscrubbed

PAGE_RECORDS: Final = 1000
PAGE_BYTES: Final = 4 * 2**20
PAGE_STREAMS: Final = 1000
_END: Final = 2**62
_MOST_CACHED: Final = 100_000

HEADS: Final = """
SELECT s.id, s.name, r.position, r.digest, s.created, p.name, s.forked_at, s.deleted
FROM eventctx.streams s LEFT JOIN eventctx.streams p ON p.id = s.parent
LEFT JOIN LATERAL (SELECT r.position, r.digest FROM eventctx.records r WHERE r.stream = s.id
  ORDER BY r.position DESC LIMIT 1) r ON true
"""

_LINEAGE: Final = """
WITH RECURSIVE line(id, parent, forked_at, first, depth) AS (
  SELECT s.id, s.parent, s.forked_at, s.first, 0 FROM eventctx.streams s WHERE s.name = $1
  UNION ALL
  SELECT s.id, s.parent, s.forked_at, s.first, line.depth + 1
  FROM line JOIN eventctx.streams s ON s.id = line.parent WHERE line.depth < 100000)
SELECT id, parent, forked_at, first FROM line ORDER BY depth
"""


def _bounded(columns: str, where: str, order: str) -> str:
    """A page of at most ``$3`` records, and of about PAGE_BYTES of contents, but at least one."""
    return (
        f"SELECT {columns} FROM (SELECT r.*, sum(r.size) OVER (ORDER BY {order} "
        f"ROWS UNBOUNDED PRECEDING) - r.size AS before FROM eventctx.records r WHERE {where} "
        f"ORDER BY {order} LIMIT $3) r WHERE r.before < {PAGE_BYTES} ORDER BY {order}"
    )


def _plain(columns: str, where: str, order: str) -> str:
    return f"SELECT {columns} FROM eventctx.records r WHERE {where} ORDER BY {order} LIMIT $3"


_OF_STREAM: Final = "r.stream = $4 AND r.position BETWEEN $1 AND $2"
_OF_ALL: Final = f"r.pos > $1 AND r.pos <= $2 AND r.pos < {FENCE}"
_PAGES: Final = {
    (bodies, backward): (_bounded if bodies else _plain)(
        WITH_DATA if bodies else WITHOUT_DATA,
        _OF_STREAM,
        "r.position DESC" if backward else "r.position",
    )
    for bodies in (True, False)
    for backward in (True, False)
}
_ALL: Final = {
    True: _bounded(WITH_DATA, _OF_ALL, "r.pos"),
    False: _plain(WITHOUT_DATA, _OF_ALL, "r.pos"),
}


class RowRange(NamedTuple):
    """Positions ``first`` to ``last`` of a stream are rows of the stream with id ``owner``."""

    owner: int
    first: int
    last: int


class Page(NamedTuple):
    """Records, and the last position to read: of a read of several pages, where it ends."""

    records: list[Record]
    stop: int


class Top(NamedTuple):
    """The last global position that is visible, and whether all below it is settled."""

    last: int
    settled: bool


class ServerQueries:
    """Queries on one connection, with caches of values that never change once committed."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._ids: dict[str, int] = {}
        self._types: dict[int, str] = {}
        self._names: dict[int, str] = {}

    @property
    def connection(self) -> ServerConnection:
        return self._connection

    def lineage(self, stream: str) -> tuple[RowRange, ...]:
        """The ranges of rows that make up the stream, oldest first. Raises StreamNotFound."""
        # A stream that is no fork never becomes one; a fork that is deleted is none any more.
        if (cached := self._ids.get(stream)) is not None:
            return (RowRange(cached, 0, _END),)
        rows = self._connection.rows(_LINEAGE, (TEXT,), (text(stream),))
        if not rows:
            raise StreamNotFound(stream)
        segments: list[RowRange] = []
        last = _END
        for owner, _parent, forked_at, first in rows:
            if first <= last:
                segments.append(RowRange(owner, first, last))
            if forked_at is not None:
                last = min(last, forked_at)
        if rows[-1][1] is not None:
            raise LogCorrupted(stream, -1, "the session that it was forked from is missing")
        if len(rows) == 1 and rows[0][3] == 0:
            _bounded_cache(self._ids)[stream] = rows[0][0]
        return tuple(reversed(segments))

    @naming_damage
    def head(self, stream: str) -> StreamInfo | None:
        """The stream's last position, digest and origin; None if it does not exist."""
        rows = self._connection.rows(HEADS + "WHERE s.name = $1", (TEXT,), (text(stream),))
        return info_from(rows[0]) if rows else None

    @naming_damage
    def stream_key(self, stream: str) -> int:
        """The row id of a stream. Raises StreamNotFound."""
        sql = "SELECT s.id FROM eventctx.streams s WHERE s.name = $1"
        rows = self._connection.rows(sql, (TEXT,), (text(stream),))
        if not rows:
            raise StreamNotFound(stream)
        return int(rows[0][0])

    def streams(self, after: int, limit: int) -> tuple[list[StreamInfo], int | None]:
        """A page of streams in order of creation, after the row id ``after``; and the next one."""
        limit = min(limit, PAGE_STREAMS)
        rows = self._connection.rows(
            HEADS + "WHERE s.id > $1 ORDER BY s.id LIMIT $2",
            (INT8, INT8),
            (int8(after), int8(limit)),
        )
        return [info_from(row) for row in rows], rows[-1][0] if len(rows) == limit else None

    def forks(self, owner: int) -> list[str]:
        """The streams forked directly from the stream with row id ``owner``."""
        sql = "SELECT s.name FROM eventctx.streams s WHERE s.parent = $1 ORDER BY s.id"
        rows = self._connection.rows(sql, (INT8,), (int8(owner),))
        return [encoding.from_text(name) for (name,) in rows]

    @naming_damage
    def page(
        self, stream: str, start: int, stop: int | None, backward: bool, limit: int, bodies: bool
    ) -> Page:
        """Some records from ``start`` to ``stop`` (both inclusive; None: the head).

        At most ``limit``, PAGE_RECORDS, and about PAGE_BYTES.
        """
        segments = self.lineage(stream)
        if stop is None or len(segments) > 1 or backward:
            last = self._last(segments[-1])
            stop = last if stop is None else min(stop, last)
        limit = min(limit, PAGE_RECORDS)
        found: list[Record] = []
        for owner, first, final in reversed(segments) if backward else segments:
            low, high = max(start, first), min(stop, final)
            while low <= high and len(found) < limit:
                params = (int8(low), int8(high), int8(limit - len(found)), int8(owner))
                more = self._records(_PAGES[bodies, backward], params, stream, bodies)
                found += more
                if not more or sum([_size(record) for record in found]) >= PAGE_BYTES:
                    break
                if backward:
                    high = more[-1].position - 1
                else:
                    low = more[-1].position + 1
            if len(found) >= limit or sum([_size(record) for record in found]) >= PAGE_BYTES:
                break
        return Page(found, stop)

    def _last(self, segment: RowRange) -> int:
        sql = "SELECT max(r.position) FROM eventctx.records r WHERE r.stream = $1"
        ((last,),) = self._connection.rows(sql, (INT8,), (int8(segment.owner),))
        return segment.first - 1 if last is None else int(last)

    def page_all(self, after: int, upto: int, limit: int, bodies: bool) -> list[Record]:
        """Some records of all streams, above ``after`` up to ``upto``, and below the fence."""
        after = max(after, -1)
        params = (int8(min(after, _END)), int8(upto), int8(min(limit, PAGE_RECORDS)))
        return self._records(_ALL[bodies], params, None, bodies)

    def top(self) -> Top:
        """The last global position, and whether a reader may go as far."""
        ((last, settled),) = self._connection.rows(
            f"SELECT t.last, t.last < {FENCE} "
            "FROM (SELECT coalesce(max(r.pos), -1) AS last FROM eventctx.records r) t"
        )
        return Top(last, settled)

    def settled(self, position: int) -> bool:
        """Whether no transaction is under way that could write at or below ``position``."""
        ((settled,),) = self._connection.rows(f"SELECT $1 < {FENCE}", (INT8,), (int8(position),))
        return bool(settled)

    def blockers(self) -> list[str]:
        """The transactions that hold the fence back, as far as the server tells: oldest first."""
        return [holder.name for holder in holders(self._connection)]

    def _records(
        self, sql: str, params: tuple[bytes, ...], stream: str | None, bodies: bool
    ) -> list[Record]:
        try:
            return self._read(sql, params, stream, bodies)
        except LogCorrupted:
            # A deletion may have come between the records and their bodies.
            return self._read(sql, params, stream, bodies)

    def _read(
        self, sql: str, params: tuple[bytes, ...], stream: str | None, bodies: bool
    ) -> list[Record]:
        rows = self._connection.rows(sql, (INT8, INT8, INT8, INT8)[: len(params)], params)
        several = [row[0] for row in rows if row[13] > 1]
        further = self._further(several, bodies) if several else {}
        if not {row[4] for row in rows} <= self._types.keys():
            self._learn_types()
        if stream is None:
            self._learn_names({row[1] for row in rows} - self._names.keys())
        return records_from(rows, stream, self._name, self._types, further)

    def _further(self, places: list[int], bodies: bool) -> dict[int, list[Body]]:
        columns = BODY_WITH_DATA if bodies else BODY_WITHOUT_DATA
        found: dict[int, list[Body]] = {pos: [] for pos in places}
        for pos, index, digest, facts, salt, data in self._connection.rows(
            f"SELECT b.pos, b.index, {columns} FROM eventctx.bodies b "
            "WHERE b.pos = ANY($1) ORDER BY b.pos, b.index",
            (INT8S,),
            (encoding.int8s(places),),
        ):
            # Another index would change no digest, and a content is fetched by its index.
            if index == len(found[pos]) + 1:
                found[pos].append(body_from(digest, facts, salt, data))
        return found

    @naming_damage
    def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        """The bodies at ``addresses``. Raises StreamNotFound, LogCorrupted."""
        segments = self.lineage(stream)
        found: list[Body] = []
        for start in range(0, len(addresses), PAGE_RECORDS):
            part = addresses[start : start + PAGE_RECORDS]
            owners = [owner_of(segments, address.position) for address in part]
            bodies = self._bodies_at(owners, part)
            for place, (position, index) in enumerate(part):
                body = bodies.get(place)
                if body is None:
                    raise LogCorrupted(stream, position, f"expected a body {index}, found none")
                found.append(body)
        return found

    def _bodies_at(self, owners: Sequence[int], part: Sequence[Address]) -> dict[int, Body]:
        found: dict[int, Body] = {}
        first = [place for place, (_, index) in enumerate(part) if index == 0]
        if first:
            for place, *body in self._connection.rows(
                "SELECT a.place, b.body_digest, b.facts, b.salt, b.data "
                "FROM unnest($1, $2) WITH ORDINALITY AS a(stream, position, place) "
                "JOIN eventctx.records b ON b.stream = a.stream AND b.position = a.position "
                "WHERE b.bodies > 0",
                (INT8S, INT8S),
                (
                    encoding.int8s([owners[place] for place in first]),
                    encoding.int8s([part[place][0] for place in first]),
                ),
            ):
                found[first[place - 1]] = body_from(*body)
        further = [place for place, (_, index) in enumerate(part) if index > 0]
        if further:
            for place, *body in self._connection.rows(
                f"SELECT a.place, {BODY_WITH_DATA} "
                "FROM unnest($1, $2, $3) WITH ORDINALITY AS a(stream, position, index, place) "
                "JOIN eventctx.records r ON r.stream = a.stream AND r.position = a.position "
                "JOIN eventctx.bodies b ON b.pos = r.pos AND b.index = a.index "
                "WHERE r.bodies > a.index",
                (INT8S, INT8S, encoding.INT4S),
                (
                    encoding.int8s([owners[place] for place in further]),
                    encoding.int8s([part[place][0] for place in further]),
                    encoding.int4s([min(part[place][1], 2**31 - 1) for place in further]),
                ),
            ):
                found[further[place - 1]] = body_from(*body)
        return found

    def snapshot(self, stream: str, name: str) -> Snapshot | None:
        """The stored snapshot; None if there is none, and on a standby, which has none."""
        try:
            rows = self._connection.rows(
                "SELECT n.position, n.digest, n.version, n.data FROM eventctx.snapshots n "
                "JOIN eventctx.streams s ON s.id = n.stream WHERE s.name = $1 AND n.name = $2",
                (TEXT, TEXT),
                (text(stream), text(name)),
            )
        except Refused as error:
            if error.code == _NOT_ON_A_STANDBY:
                return None
            raise
        return Snapshot(*rows[0]) if rows else None

    def checkpoint(self, name: str) -> int | None:
        """The stored checkpoint; None if there is none."""
        sql = (
            "SELECT c.position FROM eventctx.checkpoints c "
            "WHERE c.name = $1 AND c.tenant = current_user"
        )
        rows = self._connection.rows(sql, (TEXT,), (text(name),))
        return int(rows[0][0]) if rows else None

    def scrubbed(self) -> bool:
        """Whether no erased bytes may be left in the tables' files."""
        return not unscrubbed(self._connection)

    def inspect(self) -> Inspection:
        return Inspection(*inspect(self._connection))

    def _learn_types(self) -> None:
        for number, name in self._connection.rows("SELECT t.id, t.name FROM eventctx.types t"):
            self._types[number] = encoding.from_text(name)

    def _learn_names(self, owners: set[int]) -> None:
        if not owners:
            return
        sql = "SELECT s.id, s.name FROM eventctx.streams s WHERE s.id = ANY($1)"
        rows = self._connection.rows(sql, (INT8S,), (encoding.int8s(owners),))
        _bounded_cache(self._names).update(
            {number: encoding.from_text(name) for number, name in rows}
        )

    def _name(self, owner: int) -> str:
        name = self._names.get(owner)
        if name is None:
            raise LogCorrupted("", -1, f"records belong to session {owner}, whose name was removed")
        return name


_NOT_ON_A_STANDBY: Final = "0A000"


def owner_of(segments: Sequence[RowRange], position: int) -> int:
    """The id of the stream whose row holds a position; -1 if none does."""
    return next((s.owner for s in segments if s.first <= position <= s.last), -1)


def _size(record: Record) -> int:
    return sum([len(body.data or b"") for body in record.bodies])


def _bounded_cache(cache: dict[Any, Any]) -> dict[Any, Any]:
    if len(cache) >= _MOST_CACHED:
        cache.clear()
    return cache
