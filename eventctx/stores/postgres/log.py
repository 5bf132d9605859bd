"""Writes that are more than an append: forks, erasures, deletions, snapshots, checkpoints.

Each is one transaction. A connection that was lost in it leaves its fate unknown, so each is made
so that it can be done again: ``EarlierTries`` tells that an earlier try may have been stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from eventctx.errors import InvalidSetting, LogCorrupted, StreamExists, StreamNotFound
from eventctx.log.record import Draft, Record, place
from eventctx.log.store import Address, Appended, Erasure, Snapshot, StreamInfo
from eventctx.stores.postgres import encoding
from eventctx.stores.postgres.append import (
    KnownHead,
    KnownHeads,
    Types,
    append_result,
    read_heads,
    stored,
)
from eventctx.stores.postgres.batch import Batch
from eventctx.stores.postgres.connections import ServerConnection, in_schema
from eventctx.stores.postgres.encoding import (
    BYTEA,
    BYTEAS,
    INT4S,
    INT8,
    INT8S,
    TEXT,
    int8,
    text,
)
from eventctx.stores.postgres.errors import DISORDER, Refused
from eventctx.stores.postgres.queries import RowRange, ServerQueries, owner_of
from eventctx.stores.postgres.scrubbing import note_erasure
from eventctx.stores.rules import chain, conflict, has_forks

_LOCK_SECONDS: Final = 5
"""Longest wait for a lock; other writers queue after it meanwhile."""

_NO_FORK: Final = """
UPDATE eventctx.streams s SET deleted = true, parent = NULL, forked_at = NULL WHERE s.id = $1
"""
_HEIRS: Final = """
WITH RECURSIVE heirs(id) AS (SELECT unnest($1) UNION
  SELECT s.id FROM eventctx.streams s JOIN heirs ON s.parent = heirs.id)
DELETE FROM eventctx.snapshots n WHERE n.stream IN (SELECT id FROM heirs)
"""


class EarlierTries:
    """The effects of earlier tries of a job, if they were stored."""

    def __init__(self) -> None:
        self.lost = 0
        """EarlierTries whose fate is unknown."""
        self.bodies = 0
        """Bodies that one of them erased."""


class ServerLog:
    """The tables, as the one writing connection of this store sees them."""

    def __init__(self, connection: ServerConnection, heads: KnownHeads, types: Types) -> None:
        self.connection = connection
        self._queries = ServerQueries(connection)
        self._heads = heads
        self._types = types
        self.tries = EarlierTries()
        self.erased = False
        """Whether something was erased or deleted since the writer last set this to false."""

    def fork(self, stream: str, at: int, new: str, first: Draft) -> Appended:
        self._prepare(new, first)
        with self.connection.transaction():
            # A deletion of the parent has ended, or waits for this.
            self._lock("ROW EXCLUSIVE")
            parent = read_heads(self.connection, [stream])[stream]
            if parent is None:
                raise StreamNotFound(stream)
            if read_heads(self.connection, [new])[new] is not None:
                return self._retried_fork(stream, at, new, first)
            if not 0 <= at <= parent.position:
                raise InvalidSetting(
                    f"fork of {stream!r}: expected a position from 0 to {parent.position}, "
                    f"found {at}"
                )
            (origin,) = self._queries.page(stream, at, at, False, 1, False).records
            made = self.connection.rows(
                "INSERT INTO eventctx.streams(name, parent, forked_at, first, created) "
                "VALUES($1, $2, $3, $3 + 1, $4) ON CONFLICT (name) DO NOTHING RETURNING id",
                (TEXT, INT8, INT8, INT8),
                (text(new), int8(parent.stream), int8(at), int8(first.time)),
            )
            if not made:  # another process was faster
                return self._retried_fork(stream, at, new, first)
            head = KnownHead(made[0][0], at, origin.digest, b"")
            (record,) = self._insert([(new, head, first)], [head.stream])
        return append_result([record])

    def _retried_fork(self, stream: str, at: int, new: str, first: Draft) -> Appended:
        info = self._queries.head(new)
        if info is not None and (info.parent, info.forked_at) == (stream, at):
            done = stored(self._queries, new, at + 1, (first,)) if info.head > at else None
            if done is not None:
                return done
        raise StreamExists(new)

    def erase(
        self, bodies: Mapping[str, Mapping[Address, bytes]], records: Mapping[str, Draft]
    ) -> Erasure:
        """See ``EventStore.erase``. Also drops snapshots that may hold erased content."""
        for name, draft in records.items():
            self._prepare(name, draft)
        with self.connection.transaction():
            self._lock("ROW EXCLUSIVE")
            heads = read_heads(self.connection, records)
            for name, head in heads.items():
                if head is None:
                    raise StreamNotFound(name)
            located = [
                (*self._locate(stream, segments, address), address.index, facts)
                for stream, addresses in bodies.items()
                for segments in (self._queries.lineage(stream),)
                for address, facts in (
                    (Address(*place), facts) for place, facts in addresses.items()
                )
            ]
            erased = self._empty(
                "records", [(pos, 0, facts) for _, pos, n, facts in located if not n]
            )
            erased += self._empty("bodies", [(pos, n, facts) for _, pos, n, facts in located if n])
            self.connection.rows(
                _HEIRS, (INT8S,), (encoding.int8s({owner for owner, *_ in located}),)
            )
            self.tries.bodies = max(self.tries.bodies, erased)
            if erased:
                note_erasure(self.connection, ("records", "bodies", "snapshots"))
            added = self._append_once(
                [(name, head, records[name]) for name, head in heads.items() if head is not None]
            )
        self.erased = self.erased or self.tries.bodies > 0
        return Erasure(self.tries.bodies, tuple(added))

    def _append_once(self, drafts: Sequence[tuple[str, KnownHead, Draft]]) -> list[Record]:
        """Append a draft to each stream, unless an earlier try has done so."""
        done = [
            stored(self._queries, name, head.position, (draft,)) if head.event == draft.id else None
            for name, head, draft in drafts
        ]
        new = self._insert([one for one, before in zip(drafts, done, strict=True) if not before])
        again = [record for one in done if one is not None for record in one.records]
        return [*again, *new]

    def _locate(
        self, stream: str, segments: Sequence[RowRange], address: Address
    ) -> tuple[int, int]:
        """The owner of the record at an address, and its global position. Raises LogCorrupted."""
        position, index = address
        owner = owner_of(segments, position)
        row = self.connection.rows(
            "SELECT r.pos FROM eventctx.records r "
            "WHERE r.stream = $1 AND r.position = $2 AND r.bodies > $3",
            (INT8, INT8, INT8),
            (int8(owner), int8(position), int8(max(index, 0))),
        )
        if not row or index < 0:
            raise LogCorrupted(stream, position, f"expected a body {index}, found none")
        return owner, int(row[0][0])

    def _empty(self, table: str, places: list[tuple[int, int, bytes]]) -> int:
        if not places:
            return 0
        unnested = "unnest($1, $2, $3) AS e(pos, index, facts)"
        same = "t.pos = e.pos" if table == "records" else "t.pos = e.pos AND t.index = e.index"
        return self.connection.count(
            f"UPDATE eventctx.{table} t SET salt = NULL, data = NULL, facts = e.facts "
            f"FROM {unnested} WHERE {same} AND (t.salt IS NOT NULL OR t.data IS NOT NULL)",
            (INT8S, INT4S, BYTEAS),
            (
                encoding.int8s([pos for pos, _, _ in places]),
                encoding.int4s([index for _, index, _ in places]),
                encoding.blobs(BYTEAS, [facts for _, _, facts in places]),
            ),
        )

    def delete(self, stream: str, last: Draft, expected: int) -> Record:
        self._heads.forget(stream)
        self._prepare(stream, last)
        with self.connection.transaction():
            self._lock("SHARE ROW EXCLUSIVE")  # nobody else writes any record meanwhile
            head = read_heads(self.connection, [stream])[stream]
            if head is None:
                raise StreamNotFound(stream)
            if self.tries.lost and (head.position, head.event) == (expected + 1, last.id):
                done = stored(self._queries, stream, head.position, (last,))
                if done is not None:
                    self.erased = True
                    return done.records[0]
            if head.position != expected:
                raise conflict(stream, expected, head.position)
            forks = self._queries.forks(head.stream)
            if forks:
                raise has_forks(stream, forks)
            number = (int8(head.stream),)
            self.connection.rows(
                "DELETE FROM eventctx.bodies b USING eventctx.records r "
                "WHERE r.stream = $1 AND r.bodies > 1 AND b.pos = r.pos",
                (INT8,),
                number,
            )
            for sql in (
                "DELETE FROM eventctx.records r WHERE r.stream = $1",
                "DELETE FROM eventctx.snapshots n WHERE n.stream = $1",
                _NO_FORK,
            ):
                self.connection.rows(sql, (INT8,), number)
            note_erasure(self.connection, ("records", "bodies", "snapshots"))
            (record,) = self._insert([(stream, head, last)], [head.stream])
        self.erased = True
        return record

    def set_tombstone(self, info: StreamInfo, last: Draft, previous: bytes, records: int) -> Record:
        self._prepare(info.stream, last)
        with self.connection.transaction():
            self._lock("ROW EXCLUSIVE")
            made = self.connection.rows(
                "INSERT INTO eventctx.streams(name, first, created, deleted) "
                "VALUES($1, $2, $3, true) ON CONFLICT (name) DO NOTHING RETURNING id",
                (TEXT, INT8, INT8),
                (text(info.stream), int8(info.head - records), int8(info.created)),
            )
            if not made:
                done = stored(self._queries, info.stream, info.head, (last,))
                if done is None:
                    raise StreamExists(info.stream)
                return done.records[0]
            head = KnownHead(made[0][0], info.head - 1, previous, b"")
            (record,) = self._insert([(info.stream, head, last)], [head.stream])
        return record

    def _lock(self, mode: str) -> None:
        """Lock the records until the end of the transaction, or raise Refused, to try again."""
        for sql in (
            f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'",
            f"LOCK TABLE eventctx.records IN {mode} MODE",
            "SET LOCAL lock_timeout = 0",
        ):
            self.connection.script(in_schema(sql, self.connection.schema))

    def _prepare(self, stream: str, draft: Draft) -> None:
        """Refuse a draft that cannot be stored, and give its type a number.

        Before the transaction, so that nothing rolled back is remembered.
        """
        chain(stream, None, 0, (draft,))
        self._types.learn(self.connection, (draft,))

    def _insert(
        self, drafts: Sequence[tuple[str, KnownHead, Draft]], made: Sequence[int] = ()
    ) -> list[Record]:
        """Append one draft each after the heads of streams as this transaction has read them.

        Raises Refused, to begin again, where another one appended since.
        """
        if not drafts:
            return []
        batch = Batch(made)
        digests = []
        for stream, head, draft in drafts:
            first = head.position + 1
            digests += chain(stream, head.digest, first, (draft,))
            run = batch.run(head.stream, stream, 0, first, head.digest)
            batch.add(run, first, (draft,), self._types.of((draft,)), digests[-1:])
            self._heads.forget(stream)
        pos, found = batch.send(self.connection)
        if not all(run.accepted for run in found.values()):
            raise Refused(DISORDER, "another transaction appended meanwhile")
        return [
            place(draft, stream, head.position + 1, pos + n, digest)
            for n, ((stream, head, draft), digest) in enumerate(zip(drafts, digests, strict=True))
        ]

    def save_snapshot(self, stream: str, name: str, snapshot: Snapshot) -> None:
        """See ``EventStore.save_snapshot``. A snapshot of an unknown stream is not kept."""
        self.connection.rows(
            "INSERT INTO eventctx.snapshots(stream, name, position, digest, version, data) "
            "SELECT s.id, $2, $3, $4, $5, $6 FROM eventctx.streams s WHERE s.name = $1 "
            "ON CONFLICT (stream, name) DO UPDATE SET position = excluded.position, "
            "digest = excluded.digest, version = excluded.version, data = excluded.data",
            (TEXT, TEXT, INT8, BYTEA, INT8, BYTEA),
            (text(stream), text(name), int8(snapshot.position), snapshot.digest,
             int8(snapshot.version), snapshot.data),
        )  # fmt: skip

    def save_checkpoint(self, name: str, position: int) -> None:
        self.connection.rows(
            "INSERT INTO eventctx.checkpoints(name, position) VALUES($1, $2) "
            "ON CONFLICT (tenant, name) DO UPDATE SET position = excluded.position",
            (TEXT, INT8),
            (text(name), int8(position)),
        )
