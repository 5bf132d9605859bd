"""Writes inside one transaction: how an append, a fork and an erasure change the tables.

Invariants: a method that raises an eventctx error has changed nothing, and one that reads the
tables flushes first. New rows are collected, and ``flush`` inserts them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import apsw

from eventctx.errors import InvalidSetting, LogCorrupted, StreamExists, StreamNotFound
from eventctx.log.record import Draft, Record, place
from eventctx.log.store import (
    ANY,
    Address,
    Appended,
    Erasure,
    Expected,
    Receipt,
    Snapshot,
    StreamInfo,
)
from eventctx.stores.rules import accepts, chain, conflict, has_forks, retried_at, same_ids
from eventctx.stores.sqlite_queries import UNSCRUBBED, Queries
from eventctx.stores.sqlite_rows import (
    INSERT_BODY,
    INSERT_RECORD,
    OwnedRange,
    Row,
    body_id,
    body_rows,
    record_row,
)

_MOST_CACHED = 10_000


class Head(NamedTuple):
    """A stream's row id and its last record's position, digest and event id."""

    stream: int
    position: int
    digest: bytes
    event: bytes


class Log:
    """The tables, as the one writing connection of this process sees them."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._queries = Queries(connection)
        self._cursor = connection.cursor()
        self._heads: dict[str, Head] = {}
        self._types: dict[str, int] = {}
        self._records: list[Row] = []
        self._bodies: list[Row] = []
        self._next = 0
        self._version: int | None = None
        self.erased = False
        """Whether something was erased or deleted since the writer last set this to false."""

    def begin(self) -> bool:
        """Start a transaction; true if another process wrote since the last one."""
        self._cursor.execute("BEGIN IMMEDIATE")
        # The pragma of this name would cost a statement; the call also counts our own commits,
        # which is why the version is read again after each of them.
        version = self._connection.data_version()
        if version == self._version:
            return False
        foreign = self._version is not None
        self.forget()
        self._version = version
        ((last,),) = self._rows("SELECT coalesce(max(pos), -1) FROM records")
        self._next = last + 1
        return foreign

    def commit(self) -> None:
        """Insert the collected rows and commit."""
        self.flush()
        self._cursor.execute("COMMIT")
        self._version = self._connection.data_version()

    def rollback(self) -> None:
        """Undo the open transaction, if any, and drop the caches and the collected rows."""
        self.forget()
        if self._connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def forget(self) -> None:
        """Drop the caches and the collected rows."""
        self._heads.clear()
        self._types.clear()
        self._records.clear()
        self._bodies.clear()
        self._queries.forget()
        self._version = None

    def flush(self) -> None:
        """Insert the collected rows."""
        if self._records:
            self._cursor.executemany(INSERT_RECORD, self._records)
            self._records.clear()
        if self._bodies:
            self._cursor.executemany(INSERT_BODY, self._bodies)
            self._bodies.clear()

    def append(self, stream: str, drafts: Sequence[Draft], expected: Expected) -> Appended:
        head = self._head(stream)
        last = -1 if head is None else head.position
        accepted = accepts(expected, last, None if head is None else head.event)
        if not accepted or (head is not None and drafts and head.event == drafts[-1].id):
            first = retried_at(expected, last, len(drafts))
            if first is not None and (done := self._find_retry(stream, first, drafts)) is not None:
                return done
        if not accepted:
            raise conflict(stream, expected, last)
        digests = chain(stream, None if head is None else head.digest, last + 1, drafts)
        owner = self._new_stream(stream, drafts[0]) if head is None else head.stream
        return self._insert(stream, owner, last + 1, drafts, digests)

    def fork(self, stream: str, at: int, new: str, first: Draft) -> Appended:
        parent = self._head(stream)
        if parent is None:
            raise StreamNotFound(stream)
        if self._head(new) is not None:
            return self._retried_fork(stream, at, new, first)
        if not 0 <= at <= parent.position:
            raise InvalidSetting(
                f"fork of {stream!r}: expected a position from 0 to {parent.position}, found {at}"
            )
        self.flush()
        (origin,), _ = self._queries.page(stream, at, at, False, 1, False)
        digests = chain(new, origin.digest, at + 1, (first,))
        owner = self._new_stream(new, first, parent.stream, at)
        return self._insert(new, owner, at + 1, (first,), digests)

    def erase(
        self, bodies: Mapping[str, Mapping[Address, bytes]], records: Mapping[str, Draft]
    ) -> Erasure:
        """See ``EventStore.erase``. Also drops snapshots that may hold erased content."""
        self.flush()
        for name in records:
            if self._head(name) is None:
                raise StreamNotFound(name)
        inline: list[tuple[bytes, int]] = []
        further: list[tuple[bytes, int]] = []
        owners: set[int] = set()
        for stream, addresses in bodies.items():
            segments = self._queries.lineage(stream)
            for address, facts in addresses.items():
                owner, row = self._locate(stream, segments, address)
                owners.add(owner)
                index = address.index
                (further if index else inline).append(
                    (facts, body_id(row, index) if index else row)
                )
        erased = self._empty(
            "UPDATE records SET {} WHERE pos=? AND (salt NOT NULL OR data NOT NULL)", inline
        )
        erased += self._empty(
            "UPDATE bodies SET {} WHERE id=? AND (salt NOT NULL OR data NOT NULL)", further
        )
        for owner in owners:
            self._cursor.execute(
                "WITH RECURSIVE heirs(id) AS (SELECT ? UNION SELECT s.id FROM streams s "
                "JOIN heirs ON s.parent = heirs.id) "
                "DELETE FROM snapshots WHERE stream IN (SELECT id FROM heirs)",
                (owner,),
            )
        if erased:
            self._note_unscrubbed()
        added = [self.append(name, (one,), ANY).records for name, one in records.items()]
        return Erasure(erased, tuple([record for one in added for record in one]))

    def _locate(
        self, stream: str, segments: Sequence[OwnedRange], address: Address
    ) -> tuple[int, int]:
        """The owner of the record at an address, and its global position. Raises LogCorrupted."""
        position, index = address
        owner = next((s.owner for s in segments if s.first <= position <= s.last), -1)
        row = self._rows(
            "SELECT pos FROM records WHERE stream=? AND position=? AND bodies > ?",
            (owner, position, max(index, 0)),
        )
        if not row or index < 0:
            raise LogCorrupted(stream, position, f"expected a body {index}, found none")
        return owner, int(row[0][0])

    def delete(self, stream: str, last: Draft, expected: int) -> Record:
        head = self._head(stream)
        if head is None:
            raise StreamNotFound(stream)
        if head.position != expected:
            raise conflict(stream, expected, head.position)
        self.flush()
        forks = self._queries.forks(head.stream)
        if forks:
            raise has_forks(stream, forks)
        digests = chain(stream, head.digest, expected + 1, (last,))
        self._cursor.executemany(
            "DELETE FROM bodies WHERE id BETWEEN ? AND ?",
            [
                (body_id(pos, 1), body_id(pos + 1, 0) - 1)
                for (pos,) in self._rows(
                    "SELECT pos FROM records WHERE stream=? AND bodies > 1", (head.stream,)
                )
            ],
        )
        self._cursor.execute("DELETE FROM records WHERE stream=?", (head.stream,))
        self._cursor.execute("DELETE FROM snapshots WHERE stream=?", (head.stream,))
        self._note_unscrubbed()
        appended = self._insert(stream, head.stream, expected + 1, (last,), digests)
        return appended.records[0]

    def set_tombstone(self, info: StreamInfo, last: Draft, previous: bytes, records: int) -> Record:
        if self._head(info.stream) is not None:
            done = self._find_retry(info.stream, info.head, (last,))
            if done is None:
                raise StreamExists(info.stream)
            return done.records[0]
        digests = chain(info.stream, previous, info.head, (last,))
        owner = self._new_stream(info.stream, last, created=info.created)
        self._next += records  # the places of the destroyed records
        return self._insert(info.stream, owner, info.head, (last,), digests).records[0]

    def _note_unscrubbed(self) -> None:
        """Record in the file that its WAL still holds erased bytes, in case this process dies."""
        self.save_checkpoint(UNSCRUBBED, 0)
        self.erased = True

    def _empty(self, sql: str, ids: list[tuple[bytes, int]]) -> int:
        sql = sql.format("salt=NULL, facts=?, data=NULL", "(salt NOT NULL OR data NOT NULL)")
        changed = 0
        for facts_and_id in ids:
            self._cursor.execute(sql, facts_and_id)
            changed += self._connection.changes()
        return changed

    def save_snapshot(self, stream: str, name: str, snapshot: Snapshot) -> None:
        """See ``EventStore.save_snapshot``. A snapshot of an unknown stream is not kept."""
        head = self._head(stream)
        if head is not None:
            self._cursor.execute(
                "INSERT OR REPLACE INTO snapshots VALUES(?,?,?,?,?,?)",
                (head.stream, name, snapshot.position, snapshot.digest, snapshot.version,
                 snapshot.data),
            )  # fmt: skip

    def save_checkpoint(self, name: str, position: int) -> None:
        self._cursor.execute("INSERT OR REPLACE INTO checkpoints VALUES(?,?)", (name, position))

    def _rows(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[Row]:
        return self._cursor.execute(sql, bindings).fetchall()

    def _head(self, stream: str) -> Head | None:
        if (cached := self._heads.get(stream)) is not None:
            return cached
        self.flush()  # the cache may have been cleared since rows were collected
        rows = self._rows(
            "SELECT r.stream, r.position, r.digest, r.id FROM records r "
            "WHERE r.stream = (SELECT id FROM streams WHERE name=?) "
            "ORDER BY r.position DESC LIMIT 1",
            (stream,),
        )
        if not rows:
            if self._rows("SELECT 1 FROM streams WHERE name=?", (stream,)):
                raise LogCorrupted(stream, 0, "all records of the session were removed")
            return None
        return self._remember(stream, Head(*rows[0]))

    def _remember(self, stream: str, head: Head) -> Head:
        if len(self._heads) >= _MOST_CACHED:
            self._heads.clear()
        self._heads[stream] = head
        return head

    def _new_stream(
        self,
        stream: str,
        first: Draft,
        parent: int | None = None,
        at: int | None = None,
        created: int | None = None,
    ) -> int:
        self._cursor.execute(
            "INSERT INTO streams(name, parent, forked_at, created) VALUES(?,?,?,?)",
            (stream, parent, at, first.time if created is None else created),
        )
        return self._connection.last_insert_rowid()

    def _type(self, name: str) -> int:
        kind = self._types.get(name)
        if kind is None:
            self._cursor.execute("INSERT OR IGNORE INTO types(name) VALUES(?)", (name,))
            ((kind,),) = self._rows("SELECT id FROM types WHERE name=?", (name,))
            self._types[name] = kind
        return kind

    def _insert(
        self, stream: str, owner: int, first: int, drafts: Sequence[Draft], digests: list[bytes]
    ) -> Appended:
        records: list[Record] = []
        for position, (draft, digest) in enumerate(zip(drafts, digests, strict=True), first):
            pos = self._next
            self._next += 1
            self._records.append(
                record_row(draft, owner, position, pos, self._type(draft.type), digest)
            )
            if len(draft.bodies) > 1:
                self._bodies += body_rows(draft, pos)
            records.append(place(draft, stream, position, pos, digest))
        final = records[-1]
        self._remember(stream, Head(owner, final.position, final.digest, final.id))
        return Appended(tuple(records), Receipt(stream, final.position, final.digest))

    def _find_retry(self, stream: str, first: int, drafts: Sequence[Draft]) -> Appended | None:
        """The records of an earlier try of this append; None if other records lie there."""
        self.flush()
        found: list[Record] = []
        last = first + len(drafts) - 1
        while not found or found[-1].position < last:
            start = found[-1].position + 1 if found else first
            page, _ = self._queries.page(stream, start, last, False, len(drafts), True)
            if not page or not same_ids([r.id for r in page], drafts[start - first :][: len(page)]):
                return None
            found += page
        final = found[-1]
        return Appended(tuple(found), Receipt(stream, final.position, final.digest))

    def _retried_fork(self, stream: str, at: int, new: str, first: Draft) -> Appended:
        self.flush()
        info = self._queries.head(new)
        if info is not None and (info.parent, info.forked_at) == (stream, at):
            done = self._find_retry(new, at + 1, (first,))
            if done is not None:
                return done
        raise StreamExists(new)
