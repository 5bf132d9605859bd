"""A store in memory, for tests, trials, and sessions that need not be kept."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from eventctx.errors import (
    EventctxError,
    InvalidSetting,
    LogCorrupted,
    StoreUnavailable,
    StreamExists,
    StreamNotFound,
)
from eventctx.log.record import Body, Draft, Record, place
from eventctx.log.store import (
    ANY,
    Address,
    Appended,
    Erasure,
    Expected,
    Inspection,
    Receipt,
    Snapshot,
    StoreDescription,
    StreamInfo,
)
from eventctx.stores.ack import Ack, Bell
from eventctx.stores.rules import accepts, chain, conflict, has_forks, retried_at, same_ids


class _Stream:
    """A stream's own records, the first of which has position ``base``."""

    def __init__(self, name: str, created: int, parent: _Stream | None, base: int) -> None:
        self.name = name
        self.created = created
        self.parent = parent
        self.base = base
        self.records: list[Record] = []
        self.deleted = False

    @property
    def head(self) -> int:
        return self.base + len(self.records) - 1

    def owner(self, position: int) -> _Stream:
        """The stream that holds ``position``: this one or an ancestor."""
        stream = self
        while position < stream.base and stream.parent is not None:
            stream = stream.parent
        return stream

    def at(self, position: int) -> Record:
        owner = self.owner(position)
        record = owner.records[position - owner.base]
        return record if owner is self else replace(record, stream=self.name)


class MemoryStore:
    """``EventStore`` in this process's memory; everything is gone when the process ends.

    An append is complete when ``append`` returns; the awaitable only gives its outcome. Safe to use
    from several threads and event loops.
    """

    cache_path: Path | None = None
    read_only = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[str, _Stream] = {}
        self._log: list[tuple[_Stream, int] | None] = []
        self._snapshots: dict[tuple[str, str], Snapshot] = {}
        self._checkpoints: dict[str, int] = {}
        self._bell = Bell()
        self._closed = False

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        try:
            with self._lock:
                self._check_open()
                appended = self._append(stream, drafts, expected)
        except EventctxError as error:
            return Ack.failed(error)
        self._bell.ring()
        return Ack.of(appended)

    async def read(
        self,
        stream: str,
        *,
        start: int = 0,
        stop: int | None = None,
        backward: bool = False,
        limit: int | None = None,
        bodies: bool = True,
    ) -> AsyncIterator[Record]:
        """See ``EventStore.read``. Records appended after the read began are left out."""
        with self._lock:
            self._check_open()
            found = self._existing(stream)
            last = found.head if stop is None else min(stop, found.head)
            first = found.base if found.deleted else 0
            positions: Sequence[int] = range(max(start, first), last + 1)
            if backward:
                positions = positions[::-1]
            if limit is not None:
                positions = positions[: max(limit, 0)]
            records = [found.at(position) for position in positions]
        for record in records:
            yield record if bodies else _without_data(record)

    async def read_all(
        self, *, after: int = -1, limit: int | None = None, bodies: bool = True
    ) -> AsyncIterator[Record]:
        with self._lock:
            self._check_open()
            records = list(self._after(after))
        for record in records if limit is None else records[: max(limit, 0)]:
            yield record if bodies else _without_data(record)

    async def head(self, stream: str) -> StreamInfo | None:
        with self._lock:
            self._check_open()
            found = self._streams.get(stream)
            return None if found is None else _info(found)

    def peek(self, stream: str) -> int | None:
        with self._lock:
            if self._closed:
                return None
            found = self._streams.get(stream)
            return -1 if found is None else found.head

    async def streams(
        self, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[StreamInfo]:
        with self._lock:
            self._check_open()
            names = list(self._streams)
            first = 0 if after is None else names.index(self._existing(after).name) + 1
            last = None if limit is None else first + max(limit, 0)
            infos = [_info(self._streams[name]) for name in names[first:last]]
        for info in infos:
            yield info

    async def forks(self, stream: str) -> list[str]:
        with self._lock:
            self._check_open()
            return self._forks(self._existing(stream))

    async def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        with self._lock:
            self._check_open()
            found = self._existing(stream)
            return [_body(found, address) for address in addresses]

    async def fork(self, stream: str, at: int, new: str, first: Draft) -> Appended:
        """See ``EventStore.fork``. A retry with the same first record returns the stored one."""
        with self._lock:
            self._check_open()
            parent = self._existing(stream)
            taken = self._streams.get(new)
            if taken is not None:
                if taken.parent is parent and taken.base == at + 1:
                    done = _find_retry(taken, at + 1, (first,))
                    if done is not None:
                        return done
                raise StreamExists(new)
            if not 0 <= at <= parent.head:
                raise InvalidSetting(
                    f"fork of {stream!r}: expected a position from 0 to {parent.head}, found {at}"
                )
            digests = chain(new, parent.at(at).digest, at + 1, (first,))
            child = self._streams[new] = _Stream(new, first.time, parent, at + 1)
            appended = self._insert(child, (first,), digests)
        self._bell.ring()
        return appended

    async def subscribe(
        self, *, stream: str | None = None, after: int = -1, bodies: bool = False
    ) -> AsyncIterator[Record]:
        """See ``EventStore.subscribe``. Waits for a stream that does not exist yet."""
        while not self._closed:
            bell = self._bell.listen()
            with self._lock:
                if stream is None:
                    news = list(self._after(after))
                else:
                    found = self._streams.get(stream)
                    positions = range(after + 1, found.head + 1) if found else ()
                    news = [found.at(position) for position in positions] if found else []
            for record in news:
                after = record.global_position if stream is None else record.position
                yield record if bodies else _without_data(record)
            if not news:
                await bell

    async def erase(
        self,
        bodies: Mapping[str, Mapping[Address, bytes]],
        records: Mapping[str, Draft] = MappingProxyType({}),
    ) -> Erasure:
        """See ``EventStore.erase``. Drops the snapshots of all streams that can read the records.

        Raises StreamNotFound, and LogCorrupted for an address without a body.
        """
        with self._lock:
            self._check_open()
            for name in records:
                self._existing(name)
            places = {
                (found.owner(at.position), at): facts
                for stream, addresses in bodies.items()
                for found in (self._existing(stream),)
                for at, facts in addresses.items()
                if _body(found, at) is not None
            }
            erased = [_empty(owner, at, facts) for (owner, at), facts in places.items()]
            owners = {owner for owner, _ in places}
            for key in list(self._snapshots):
                if owners & set(_ancestors(self._streams[key[0]])):
                    del self._snapshots[key]
            added = [self._append(name, (one,), ANY).records for name, one in records.items()]
        self._bell.ring()
        return Erasure(sum(erased), tuple([record for one in added for record in one]))

    async def delete(self, stream: str, last: Draft, expected: int) -> Record:
        with self._lock:
            self._check_open()
            found = self._existing(stream)
            if found.head != expected:
                raise conflict(stream, expected, found.head)
            if forks := self._forks(found):
                raise has_forks(stream, forks)
            (digest,) = chain(stream, found.at(expected).digest, expected + 1, (last,))
            self._log = [None if one and one[0] is found else one for one in self._log]
            self._snapshots = {key: n for key, n in self._snapshots.items() if key[0] != stream}
            left = self._streams[stream] = _Stream(stream, found.created, None, expected + 1)
            left.deleted = True
            record = self._insert(left, (last,), [digest]).records[0]
        self._bell.ring()
        return record

    async def set_tombstone(
        self, info: StreamInfo, last: Draft, previous: bytes, records: int
    ) -> Record:
        with self._lock:
            self._check_open()
            taken = self._streams.get(info.stream)
            if taken is not None:
                done = _find_retry(taken, info.head, (last,)) if taken.deleted else None
                if done is None:
                    raise StreamExists(info.stream)
                return done.records[0]
            (digest,) = chain(info.stream, previous, info.head, (last,))
            self._log += [None] * records
            left = self._streams[info.stream] = _Stream(info.stream, info.created, None, info.head)
            left.deleted = True
            record = self._insert(left, (last,), [digest]).records[0]
        self._bell.ring()
        return record

    async def scrubbed(self) -> bool:
        """See ``EventStore.scrubbed``. Nothing is kept in files."""
        return True

    async def inspect(self) -> Inspection:
        with self._lock:
            return Inspection((), self._log.count(None))

    async def describe(self) -> StoreDescription:
        return StoreDescription("memory", "memory://", "this process", "nothing")

    async def load_snapshot(self, stream: str, name: str) -> Snapshot | None:
        with self._lock:
            self._check_open()
            return self._snapshots.get((stream, name))

    def save_snapshot(self, stream: str, name: str, snapshot: Snapshot) -> None:
        """See ``EventStore.save_snapshot``. A snapshot of an unknown stream is not kept."""
        with self._lock:
            if stream in self._streams and not self._closed:
                self._snapshots[stream, name] = snapshot

    async def load_checkpoint(self, name: str) -> int | None:
        with self._lock:
            self._check_open()
            return self._checkpoints.get(name)

    async def save_checkpoint(self, name: str, position: int) -> None:
        """See ``EventStore.save_checkpoint``; as durable as the rest of this store."""
        with self._lock:
            self._check_open()
            self._checkpoints[name] = position

    async def close(self) -> None:
        with self._lock:
            self._closed = True
        self._bell.ring()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the memory store is closed, and its records are gone")

    def _forks(self, parent: _Stream) -> list[str]:
        # A deleted fork has no parent any more.
        return [one.name for one in self._streams.values() if one.parent is parent]

    def _existing(self, stream: str) -> _Stream:
        found = self._streams.get(stream)
        if found is None:
            raise StreamNotFound(stream)
        return found

    def _append(self, stream: str, drafts: Sequence[Draft], expected: Expected) -> Appended:
        found = self._streams.get(stream)
        head = -1 if found is None else found.head
        first = retried_at(expected, head, len(drafts))
        if found is not None and first is not None and drafts:
            done = _find_retry(found, first, drafts)
            if done is not None:
                return done
        last = None if found is None else found.at(head).id
        if not accepts(expected, head, last):
            raise conflict(stream, expected, head)
        previous = None if found is None else found.at(head).digest
        digests = chain(stream, previous, head + 1, drafts)
        if found is None:
            found = self._streams[stream] = _Stream(stream, drafts[0].time, None, 0)
        return self._insert(found, drafts, digests)

    def _insert(self, stream: _Stream, drafts: Sequence[Draft], digests: list[bytes]) -> Appended:
        records = []
        for draft, digest in zip(drafts, digests, strict=True):
            position = stream.head + 1
            record = place(draft, stream.name, position, len(self._log), digest)
            stream.records.append(record)
            self._log.append((stream, position))
            records.append(record)
        return _append_result(records)

    def _after(self, after: int) -> Iterator[Record]:
        for place_ in self._log[max(after + 1, 0) :]:
            if place_ is not None:
                yield place_[0].at(place_[1])


def _append_result(records: Sequence[Record]) -> Appended:
    last = records[-1]
    return Appended(tuple(records), Receipt(last.stream, last.position, last.digest))


def _find_retry(stream: _Stream, first: int, drafts: Sequence[Draft]) -> Appended | None:
    """The records of an earlier try of this append; None if other records lie there."""
    if first + len(drafts) - 1 > stream.head:
        return None
    found = [stream.at(position) for position in range(first, first + len(drafts))]
    return _append_result(found) if same_ids([record.id for record in found], drafts) else None


def _body(stream: _Stream, address: Address) -> Body:
    position, index = address
    bodies = stream.at(position).bodies if 0 <= position <= stream.head else ()
    if not 0 <= index < len(bodies):
        raise LogCorrupted(stream.name, position, f"expected a body {index}, found none")
    return bodies[index]


def _empty(owner: _Stream, address: Address, facts: bytes) -> bool:
    """Erase a body in the stream that holds it; false if it was erased before."""
    position, index = address
    record = owner.records[position - owner.base]
    if record.bodies[index].erased:
        return False
    changed = list(record.bodies)
    changed[index] = Body(changed[index].digest, facts, erased=True)
    owner.records[position - owner.base] = replace(record, bodies=tuple(changed))
    return True


def _ancestors(stream: _Stream) -> Iterator[_Stream]:
    step: _Stream | None = stream
    while step is not None:
        yield step
        step = step.parent


def _info(stream: _Stream) -> StreamInfo:
    last = stream.records[-1]
    parent = None if stream.parent is None else stream.parent.name
    forked_at = None if stream.parent is None else stream.base - 1
    return StreamInfo(
        stream.name,
        last.position,
        last.digest,
        stream.created,
        parent,
        forked_at,
        stream.deleted,
    )


def _without_data(record: Record) -> Record:
    bodies = tuple(Body(body.digest, body.facts, erased=body.erased) for body in record.bodies)
    return replace(record, bodies=bodies)
