"""The store apart from its records: list of sessions, snapshots and checkpoints, inspection.

Every shard has a subject with an entry for each session, stored in one batch with its first record.
Snapshots and checkpoints have a stream of their own; to lose it loses nothing. A replaced snapshot
is destroyed, since it may hold what is erased later. One that is too large for a message is not
kept.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

from eventctx.errors import EventctxError, LogCorrupted, StreamNotFound
from eventctx.log.store import Inspection, Snapshot, StreamInfo
from eventctx.stores.jetstream.connection import ApiError, ServerLink
from eventctx.stores.jetstream.layout import (
    BATCH_MESSAGES,
    Registered,
    decode_registered,
    decode_relative,
    name_of,
    token,
)
from eventctx.stores.jetstream.owners import existing
from eventctx.stores.jetstream.reading import SessionReader
from eventctx.stores.jetstream.retrying_reads import StoredMessage

PAGE_STREAMS: Final = 200

_AT_ONCE = 32
_MOST_PLACES = 10_000

Place = tuple[int, int]
"""The sequence of an entry and its shard: sessions are listed in this order."""


class Registry:
    """Lists the sessions of a store, for use in the event loop of its client."""

    def __init__(self, reader: SessionReader) -> None:
        self._reader = reader
        self._reads = reader.reads
        self._names = reader.names
        self._places: OrderedDict[str, Place] = OrderedDict()
        """The places of the last sessions of pages: the next page is asked for by that name."""

    async def page(self, after: str | None, limit: int | None = None) -> list[StreamInfo]:
        """Some sessions created after the session ``after``; none at the end.

        Raises StreamNotFound, LogCorrupted.
        """
        count = PAGE_STREAMS if limit is None else min(limit, PAGE_STREAMS)
        if count <= 0:
            return []
        place = (0, -1) if after is None else await self._place(after)
        entries = await self._entries(place, count)
        turns = asyncio.Semaphore(_AT_ONCE)

        async def info(entry: Registered) -> StreamInfo:
            async with turns:
                found = await self._reader.head(entry.session)
            if found is None:
                raise LogCorrupted(entry.session, 0, "it is in the registry, and has no record")
            return found

        infos = list(await asyncio.gather(*[info(entry) for _, entry in entries]))
        if entries:
            self._keep(infos[-1].stream, entries[-1][0])
        return infos

    async def _entries(self, place: Place, count: int) -> list[tuple[Place, Registered]]:
        """The next entries of all shards after ``place``, in order."""
        found: list[tuple[Place, Registered]] = []
        for shard in range(self._names.shards):
            # In this shard, an entry at the same sequence comes later only with a higher shard.
            sequence = place[0] + (0 if shard > place[1] else 1)
            await self._reader.heads.check(shard)
            found += await self._of_shard(shard, sequence, count)
        found.sort(key=lambda one: one[0])
        return found[:count]

    async def _of_shard(
        self, shard: int, sequence: int, count: int
    ) -> list[tuple[Place, Registered]]:
        subject = self._names.of_shard("n", shard)
        last = await self._reader.heads.last(shard, subject)
        found: list[tuple[Place, Registered]] = []
        while last is not None and sequence <= last.sequence and len(found) < count:
            page = await self._reads.page(shard, subject, sequence, messages=count)
            messages = page.messages
            if not messages:  # a replica that lags: the leader knows of one more
                messages = [await self._reads.next(shard, subject, sequence) or last]
            for message in messages:
                entry = self._entry(shard, message)
                if not entry.deleted:
                    found.append(((message.sequence, shard), entry))
            sequence = messages[-1].sequence + 1
        return found[:count]

    def _entry(self, shard: int, message: StoredMessage) -> Registered:
        try:
            return decode_registered(message.data)
        except msgspec.MsgspecError as error:
            stream = self._names.stream(shard)
            problem = f"entry {message.sequence} of the registry of {stream} is damaged: {error}"
            raise LogCorrupted("", -1, problem) from error

    async def _place(self, session: str) -> Place:
        """Where a session's entry lies. Raises StreamNotFound."""
        kept = self._places.get(session)
        if kept is not None:
            return kept
        head = await existing(self._reader.heads, session)
        shard = self._names.shard(session)
        near = 1
        if not head.deleted:  # else its first record is gone, and tells nothing of the entry
            first = await self._reader.reads.page(
                shard, self._names.of_session("r", session), 1, messages=1
            )
            # One batch holds both.
            near = first.messages[0].sequence - BATCH_MESSAGES if first.messages else 1
        found = await self._search(shard, session, max(near, 1))
        if found is None and near > 1:
            found = await self._search(shard, session, 1)
        if found is None:
            raise StreamNotFound(session)
        self._keep(session, found)
        return found

    async def _search(self, shard: int, session: str, sequence: int) -> Place | None:
        subject = self._names.of_shard("n", shard)
        while True:
            page = await self._reads.page(shard, subject, sequence)
            for message in page.messages:
                entry = self._entry(shard, message)
                if entry.session == session and not entry.deleted:
                    return message.sequence, shard
            if not page.pending:
                return None
            sequence = page.messages[-1].sequence + 1

    def _keep(self, session: str, place: Place) -> None:
        self._places[session] = place
        while len(self._places) > _MOST_PLACES:
            self._places.popitem(last=False)

    async def forks(self, session: str) -> list[str]:
        await existing(self._reader.heads, session)
        shard, subject = self._names.shard(session), self._names.of_session("f", session)
        last = await self._reader.heads.last(shard, subject)
        names: list[str] = []
        sequence = 1
        while last is not None and sequence <= last.sequence:
            page = await self._reads.page(shard, subject, sequence)
            messages = page.messages or [await self._reads.next(shard, subject, sequence) or last]
            for message in messages:
                try:
                    fork = decode_relative(message.data).fork
                except msgspec.MsgspecError as error:
                    problem = f"message {message.sequence} of {subject} is damaged: {error}"
                    raise LogCorrupted(session, -1, problem) from error
                if fork is not None and fork not in names:
                    names.append(fork)
            sequence = messages[-1].sequence + 1
        heads = await asyncio.gather(*[self._reader.head(name) for name in names])
        # One that was refused, or lost on its way, is in the family and was never made.
        return [
            found.stream
            for found in heads
            if found is not None and found.parent == session and not found.deleted
        ]


_HEADER_BYTES: Final = 4096


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """A stored snapshot, and a unit near it, from which to read the later records."""

    position: int
    digest: bytes
    version: int
    data: bytes
    near_first: int = -1
    near_sequence: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode_kept = msgspec.msgpack.Decoder(_Kept).decode
_decode_position = msgspec.msgpack.Decoder(int).decode


class Caches:
    """Snapshots and checkpoints of one store, for use in the event loop of its client."""

    def __init__(self, link: ServerLink, reader: SessionReader) -> None:
        self._link = link
        self._reader = reader
        self._names = link.names
        self._saves: dict[str, asyncio.Lock] = {}

    async def load_snapshot(self, session: str, name: str) -> Snapshot | None:
        subject = self._names.snapshot(session, name)
        async with self._lock(subject):
            found = await self._reader.reads.last_of(self._names.caches, subject)
        if found is None:
            return None
        try:
            kept = _decode_kept(found.data)
        except msgspec.MsgspecError:
            return None
        if 0 <= kept.near_first <= kept.position:
            self._reader.positions.add(session, kept.near_first, kept.near_sequence)
        return Snapshot(kept.position, kept.digest, kept.version, kept.data)

    async def save_snapshot(self, session: str, name: str, snapshot: Snapshot) -> None:
        """Put a snapshot in the place of the last of its name; that of no session is not kept."""
        subject = self._names.snapshot(session, name)
        async with self._lock(subject):  # at once, so that a later load waits
            near = self._reader.positions.before(session, snapshot.position)
            kept = _Kept(
                snapshot.position,
                snapshot.digest,
                snapshot.version,
                snapshot.data,
                *((-1, 0) if near is None else near),
            )
            encoded = _encode(kept)
            if len(encoded) > self._link.client.max_payload - _HEADER_BYTES:
                return
            if await self._reader.heads.head(session) is not None:
                await self._replace(subject, encoded)

    async def drop(self, sessions: Iterable[str]) -> int:
        """Destroy all snapshots of these sessions; returns how many messages went."""
        gone = 0
        for session in sessions:
            of_session = f"{self._names.prefix}.kv.s.{token(session)}."
            for subject, lock in list(self._saves.items()):
                if subject.startswith(of_session):
                    async with lock:  # saves that began before must not come afterwards
                        pass
            for message in await self._all(of_session + "*"):
                await self._destroy(message.sequence)
                gone += 1
        return gone

    async def load_checkpoint(self, name: str) -> int | None:
        subject = self._names.checkpoint(name)
        found = await self._reader.reads.last_of(self._names.caches, subject)
        if found is None:
            return None
        try:
            return _decode_position(found.data)
        except msgspec.MsgspecError:
            return None

    async def save_checkpoint(self, name: str, position: int) -> None:
        subject = self._names.checkpoint(name)
        async with self._lock(subject):
            await self._replace(subject, _encode(position))

    async def _replace(self, subject: str, encoded: bytes) -> None:
        older = await self._all(subject)
        await self._link.request(subject, encoded)
        for message in older:
            await self._destroy(message.sequence)

    async def _destroy(self, sequence: int) -> None:
        """Overwrite a message's bytes, unless another did so meanwhile."""
        with suppress(ApiError):
            stream = self._names.caches
            await self._link.request(f"$JS.API.STREAM.MSG.DELETE.{stream}", {"seq": sequence})

    async def _all(self, subject: str) -> list[StoredMessage]:
        """All messages of a subject, as the leader has them."""
        found: list[StoredMessage] = []
        sequence = 1
        while (
            one := await self._reader.reads.next_of(self._names.caches, subject, sequence)
        ) is not None:
            found.append(one)
            sequence = one.sequence + 1
        return found

    def _lock(self, subject: str) -> asyncio.Lock:
        if len(self._saves) > 1000:
            self._saves = {key: lock for key, lock in self._saves.items() if lock.locked()}
        return self._saves.setdefault(subject, asyncio.Lock())


_OF_SESSIONS = ("r", "b", "p", "e", "f")
_OF_SHARDS = ("n", "x", "d", "g", "t")


async def inspect(reader: SessionReader) -> Inspection:
    """See ``EventStore.inspect``. Asks the leader of every shard for every session's end."""
    findings: list[str] = []
    missing = 0
    for shard in range(reader.names.shards):
        stream = reader.names.stream(shard)
        try:
            await reader.heads.check(shard)
        except LogCorrupted as damage:
            findings.append(damage.problem)
        subject = reader.names.of_shard("n", shard)
        listed: set[str] = set()
        sequence = 1
        while True:
            page = await reader.reads.page(shard, subject, sequence)
            for message in page.messages:
                try:
                    entry = decode_registered(message.data)
                except msgspec.MsgspecError as error:
                    findings.append(f"{stream}: entry {message.sequence} of the registry: {error}")
                    continue
                if entry.deleted:
                    missing += entry.records
                    continue
                if entry.session in listed:
                    findings.append(f"{stream}: {entry.session!r} is in the registry twice")
                listed.add(entry.session)
                finding = await _end(reader, entry.session)
                if finding is not None:
                    findings.append(finding)
            if not page.pending:
                break
            sequence = page.messages[-1].sequence + 1
        findings += await _unlisted(reader, shard, listed)
    return Inspection(tuple(findings), missing)


async def _end(reader: SessionReader, session: str) -> str | None:
    """The problem with the end of a registered session, in words."""
    try:
        head = await reader.heads.head(session)
    except LogCorrupted as damage:
        return damage.problem
    except EventctxError as error:
        return str(error)
    return None if head is not None else f"{session!r} is in the registry, and has no record"


async def _unlisted(reader: SessionReader, shard: int, listed: set[str]) -> list[str]:
    """Subjects of the shard's stream that no store writes, and unregistered sessions."""
    findings: list[str] = []
    stream = reader.names.stream(shard)
    prefix = f"{reader.names.prefix}.{shard}."
    async for subject in reader.reads.subjects(shard):
        kind, _, written = subject.removeprefix(prefix).partition(".")
        if (kind in _OF_SESSIONS) is not bool(written) or kind not in _OF_SESSIONS + _OF_SHARDS:
            findings.append(f"{stream}: {subject!r} is a subject that no store writes")
        elif kind == "r" and name_of(written) not in listed:
            findings.append(f"{stream}: {name_of(written)!r} has records and is not registered")
    return findings
