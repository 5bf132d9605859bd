"""Reads on one connection, for one thread at a time.

Their last part looks at the database file as a whole, for damage that no walk over one stream sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, cast

import apsw

from eventctx.errors import LogCorrupted, StreamNotFound
from eventctx.log.record import Body, Record
from eventctx.log.store import Address, Inspection, Snapshot, StreamInfo
from eventctx.stores.sqlite_rows import (
    BODY_WITH_DATA,
    BODY_WITHOUT_DATA,
    WITH_DATA,
    WITHOUT_DATA,
    OwnedRange,
    Row,
    bodies_at,
    body_from,
    body_id,
    records_from,
)
from eventctx.stores.sqlite_schema import TABLES

UNSCRUBBED = "eventctx:unscrubbed"
"""The checkpoint that is there while erased bytes may be left in the log."""

PAGE_RECORDS = 1000
PAGE_BYTES = 4 * 2**20
PAGE_STREAMS = 500
_END = 2**62
_MOST_CACHED = 10_000

_HEADS = """
SELECT s.name, r.position, r.digest, s.created, p.name, s.forked_at,
  r.type = (SELECT id FROM types WHERE name='session:deleted') FROM streams s
LEFT JOIN streams p ON p.id = s.parent
LEFT JOIN records r ON r.stream = s.id
  AND r.position = (SELECT max(position) FROM records WHERE stream = s.id)
"""


def _info(row: Row) -> StreamInfo:
    """A stream; one whose records are gone has the head -1 and no digest."""
    name, head, digest, created, parent, forked_at, deleted = row
    head = head if type(head) is int and type(digest) is bytes else -1
    return StreamInfo(
        name,
        head,
        digest if head >= 0 else b"",
        created if type(created) is int else 0,
        parent if type(parent) is str else None,
        forked_at if type(forked_at) is int else None,
        deleted == 1,
    )


class Queries:
    """Queries of the database, with caches of values that never change once committed."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._lineages: dict[str, tuple[OwnedRange, ...]] = {}
        self._types: dict[int, str] = {}
        self._names: dict[int, str] = {}

    def forget(self) -> None:
        """Drop the caches, as after a rollback of rows that they hold."""
        self._lineages.clear()
        self._types.clear()
        self._names.clear()

    def lineage(self, stream: str) -> tuple[OwnedRange, ...]:
        """The ranges of rows that make up the stream, oldest first. Raises StreamNotFound."""
        if (cached := self._lineages.get(stream)) is not None:
            return cached
        segments: list[OwnedRange] = []
        row = self._one("SELECT id, parent, forked_at FROM streams WHERE name=?", (stream,))
        last = _END
        met: set[int] = set()
        while row is not None:
            owner, parent, forked_at = row
            if owner in met or (parent is None) != (forked_at is None):
                problem = "its forks have no beginning: the streams' parents were changed"
                raise LogCorrupted(stream, -1, problem)
            met.add(owner)
            first = 0 if forked_at is None else forked_at + 1
            if first <= last:
                segments.append(OwnedRange(owner, first, last))
            if parent is None:
                break
            last = min(last, forked_at)
            row = self._one("SELECT id, parent, forked_at FROM streams WHERE id=?", (parent,))
            if row is None:
                raise LogCorrupted(stream, -1, "the session that it was forked from is missing")
        if not segments:
            raise StreamNotFound(stream)
        if len(self._lineages) >= _MOST_CACHED:
            self._lineages.clear()
        found = self._lineages[stream] = tuple(reversed(segments))
        return found

    def head(self, stream: str) -> StreamInfo | None:
        """The stream's last position, digest and origin; None if it does not exist."""
        row = self._one(_HEADS + "WHERE s.name = ?", (stream,))
        return None if row is None else _info(row)

    def stream_key(self, stream: str) -> int:
        """The row id of a stream. Raises StreamNotFound."""
        row = self._one("SELECT id FROM streams WHERE name=?", (stream,))
        if row is None:
            raise StreamNotFound(stream)
        return int(row[0])

    def streams(self, after: int, limit: int) -> tuple[list[StreamInfo], int | None]:
        """Some streams with row ids above ``after``, and the last of these; None after the last.

        At most ``limit`` and PAGE_STREAMS. Unreadable ones are left out.
        """
        limit = min(limit, PAGE_STREAMS)
        page = "SELECT id FROM streams WHERE id > ? ORDER BY id LIMIT ?"
        found: list[Row] = self._connection.execute(page, (after, limit)).fetchall()
        keys = [row[0] for row in found]
        if not keys:
            return [], None
        among = "WHERE s.id > ? AND s.id <= ? ORDER BY s.id"
        try:
            rows: list[Row] = self._connection.execute(_HEADS + among, (after, keys[-1])).fetchall()
        except (apsw.CorruptError, ValueError):
            rows = self._readable_heads(keys)
        infos = [_info(row) for row in rows if type(row[0]) is str]
        return infos, keys[-1] if len(keys) == limit else None

    def _readable_heads(self, keys: Sequence[int]) -> list[Row]:
        """The rows that can be read, one by one: one broken session must not hide the others."""
        rows: list[Row] = []
        for key in keys:
            with suppress(apsw.CorruptError, ValueError):
                rows += self._connection.execute(_HEADS + "WHERE s.id=?", (key,)).fetchall()
        return rows

    def page(
        self, stream: str, start: int, stop: int | None, backward: bool, limit: int, bodies: bool
    ) -> tuple[list[Record], int]:
        """Some records from ``start`` to ``stop`` (both inclusive; None: the head).

        At most ``limit``, PAGE_RECORDS, and about PAGE_BYTES. Also returns the last position to
        read, so that a read of several pages does not follow a stream that grows meanwhile.
        """
        segments = self.lineage(stream)
        head = self._one("SELECT max(position) FROM records WHERE stream=?", (segments[-1].owner,))
        last = segments[-1].first - 1 if head is None or head[0] is None else head[0]
        stop = last if stop is None else min(stop, last)
        limit = min(limit, PAGE_RECORDS)
        columns = WITH_DATA if bodies else WITHOUT_DATA
        order = "DESC" if backward else "ASC"
        found: list[Record] = []
        for owner, first, final in reversed(segments) if backward else segments:
            low, high = max(start, first), min(stop, final)
            if low > high:
                continue
            complete = self._add(
                found,
                f"SELECT {columns} FROM records WHERE stream=? AND position BETWEEN ? AND ? "  # noqa: S608
                f"ORDER BY position {order} LIMIT ?",
                (owner, low, high, limit - len(found)),
                stream,
                bodies,
                high if backward else low,
            )
            if not complete or len(found) >= limit:
                break
        return found, stop

    def page_all(self, after: int, limit: int, bodies: bool) -> list[Record]:
        """Some records with a global position above ``after``, of all streams."""
        columns = WITH_DATA if bodies else WITHOUT_DATA
        records: list[Record] = []
        self._add(
            records,
            f"SELECT {columns} FROM records WHERE pos > ? ORDER BY pos LIMIT ?",  # noqa: S608
            (after, min(limit, PAGE_RECORDS)),
            None,
            bodies,
            after + 1,
        )
        return records

    def _add(
        self,
        found: list[Record],
        sql: str,
        bindings: tuple[int, ...],
        stream: str | None,
        bodies: bool,
        first: int,
    ) -> bool:
        """Add a query's records to ``found``; False if it ended early, by size or by damage.

        Damage is an error only where it comes first, so that the records before it can be read.
        ``first`` is the position to name then. Raises LogCorrupted.
        """
        columns = BODY_WITH_DATA if bodies else BODY_WITHOUT_DATA

        def further(pos: int, count: int) -> list[Body]:
            rows = self._connection.execute(
                f"SELECT {columns},id FROM bodies WHERE id BETWEEN ? AND ? ORDER BY id",  # noqa: S608
                (body_id(pos, 1), body_id(pos + 1, 0) - 1),
            ).fetchall()
            # Another id would change no digest, and a content is fetched by its id.
            wanted = [body_id(pos, index) for index in range(1, len(rows) + 1)]
            if len(rows) != count - 1 or [row[4] for row in rows] != wanted:
                raise ValueError(f"expected {count} contents of the record, found others")
            return [body_from(row[:4]) for row in rows]

        before = len(found)
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql, bindings)
            name = self._name if stream is None else stream
            return records_from(found, cursor, name, self._type, further, PAGE_BYTES)
        except (apsw.CorruptError, ValueError) as error:
            if len(found) > before:
                return False
            problem = f"the database file is damaged ({error})"
            raise LogCorrupted(stream or "", first, problem) from error
        except LogCorrupted:
            if len(found) > before:
                return False
            raise
        finally:
            cursor.close(True)  # a cursor left open would keep the log from being checkpointed

    def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        """The bodies at ``addresses``. Raises StreamNotFound, LogCorrupted."""
        return bodies_at(self._connection, stream, self.lineage(stream), addresses)

    def snapshot(self, stream: str, name: str) -> Snapshot | None:
        """The stored snapshot; None if there is none."""
        row = self._one(
            "SELECT n.position, n.digest, n.version, n.data FROM snapshots n "
            "JOIN streams s ON s.id = n.stream WHERE s.name=? AND n.name=?",
            (stream, name),
        )
        return None if row is None else Snapshot(*row)

    def checkpoint(self, name: str) -> int | None:
        """The stored checkpoint; None if there is none."""
        row = self._one("SELECT position FROM checkpoints WHERE name=?", (name,))
        return None if row is None else int(row[0])

    def forks(self, owner: int) -> list[str]:
        """The streams that read rows of the stream with row id ``owner``, without deleted ones."""
        children = _HEADS + "WHERE s.parent=? ORDER BY s.id"
        rows: list[Row] = self._connection.execute(children, (owner,)).fetchall()
        return [info.stream for info in map(_info, rows) if not info.deleted]

    def scrubbed(self) -> bool:
        """Whether no erased bytes may be left in the log."""
        return self.checkpoint(UNSCRUBBED) is None

    def settings(self) -> tuple[str, dict[str, str]]:
        """SQLite's version, and the settings of the file that matter for durability."""
        facts = {"journal_mode": str(self._connection.pragma("journal_mode"))}
        return f"SQLite {apsw.sqlite_lib_version()}", facts

    def inspect(self) -> Inspection:
        return Inspection(*inspect(self._connection))

    def data_version(self) -> int:
        """A number that changes whenever another connection commits."""
        return cast(int, self._connection.pragma("data_version"))

    def _one(self, sql: str, bindings: tuple[Any, ...]) -> Row | None:
        rows = self._connection.execute(sql, bindings).fetchall()
        return rows[0] if rows else None

    def _type(self, kind: int) -> str:
        return self._intern(self._types, "SELECT id, name FROM types", kind)

    def _name(self, stream: int) -> str:
        return self._intern(self._names, "SELECT id, name FROM streams WHERE id >= ?", stream)

    def _intern(self, cache: dict[int, str], sql: str, key: int) -> str:
        name = cache.get(key)
        if name is None:
            bindings = (key,) if "?" in sql else ()
            rows = self._connection.execute(sql, bindings).fetchall()
            cache.update(cast(list[tuple[int, str]], rows))
            name = cache.get(key)
        if name is None:
            raise LogCorrupted("", -1, f"a record refers to row {key}, which is missing: {sql}")
        return name


_MOST = 100
"""The most findings of SQLite's own check that are listed."""

_STRAYS = (
    ("SELECT count(*) FROM records WHERE stream NOT IN (SELECT id FROM streams)",
     "records belong to no session: their sessions' names were removed"),
    ("SELECT count(*) FROM bodies WHERE id >> 20 NOT IN (SELECT pos FROM records)",
     "contents belong to no record"),
    ("SELECT count(*) FROM records WHERE type NOT IN (SELECT id FROM types)",
     "records have a type whose name was removed"),
    ("SELECT count(*) FROM snapshots WHERE stream NOT IN (SELECT id FROM streams)",
     "snapshots belong to no session"),
)  # fmt: skip


def inspect(connection: apsw.Connection) -> tuple[tuple[str, ...], int]:
    """The findings, and how many global positions hold no record. Never raises for damage."""
    findings: list[str] = []
    for step in (_of_sqlite, _of_schema, _of_strays):
        try:
            findings += step(connection)
        except (apsw.Error, ValueError) as error:
            findings.append(f"the file could not be checked to its end: {error}")
    try:
        rows: Any = connection.execute("SELECT count(*), max(pos) FROM records").fetchall()
        ((stored, last),) = rows
        missing = 0 if last is None else int(last) + 1 - int(stored)
    except (apsw.Error, ValueError, TypeError) as error:
        findings.append(f"the records could not be counted: {error}")
        missing = 0
    return tuple(findings), missing


def _of_sqlite(connection: apsw.Connection) -> Iterator[str]:
    for (found,) in connection.execute(f"PRAGMA integrity_check({_MOST})").fetchall():
        if found != "ok":
            yield f"SQLite finds damage: {found}"


def _of_schema(connection: apsw.Connection) -> Iterator[str]:
    found = _schema(connection)
    for kind, name in sorted(found.keys() - _own().keys()):
        yield f"a foreign hand added the {kind} {name!r}"
    for kind, name in sorted(_own().keys() - found.keys()):
        yield f"the {kind} {name!r} was removed"
    for key, sql in _own().items():
        if key in found and found[key] != sql:
            yield f"the {key[0]} {key[1]!r} was changed"


def _of_strays(connection: apsw.Connection) -> Iterator[str]:
    for query, problem in _STRAYS:
        ((count,),) = connection.execute(query).fetchall()
        if count:
            yield f"{count} {problem}"


def _schema(connection: apsw.Connection) -> dict[tuple[str, str], str | None]:
    rows: Any = connection.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
    # SQLite's own statistics, which an ANALYZE makes, change no answer.
    return {(kind, name): sql for kind, name, sql in rows if not name.startswith("sqlite_stat")}


@cache
def _own() -> dict[tuple[str, str], str | None]:
    connection = apsw.Connection(":memory:")
    connection.execute(TABLES).fetchall()
    return _schema(connection)
