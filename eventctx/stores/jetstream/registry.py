"""The sessions of a store in order of their creation, page by page, and the forks of a session.

Every shard has a subject with an entry for each session, stored in one batch with its first record.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

import msgspec

from eventctx.errors import LogCorrupted, StreamNotFound
from eventctx.log.store import StreamInfo
from eventctx.stores.jetstream.collecting import Stored
from eventctx.stores.jetstream.layout import (
    BATCH_MESSAGES,
    Registered,
    decode_registered,
    decode_relative,
)
from eventctx.stores.jetstream.owners import existing
from eventctx.stores.jetstream.reading import Reader

PAGE_STREAMS: Final = 200

_AT_ONCE = 32
_MOST_PLACES = 10_000

Place = tuple[int, int]
"""The sequence of an entry and its shard: sessions are listed in this order."""


class Registry:
    """Lists the sessions of a store, for use in the event loop of its client."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._asking = reader.asking
        self._names = reader.names
        self._places: OrderedDict[str, Place] = OrderedDict()
        """Where pages ended: the next one is asked for by the last name."""

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
        """The next entries behind ``place`` of all shards, in order."""
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
            page = await self._asking.page(shard, subject, sequence, messages=count)
            messages = page.messages
            if not messages:  # a replica that lags: the leader knows of one more
                messages = [await self._asking.next(shard, subject, sequence) or last]
            for message in messages:
                entry = self._entry(shard, message)
                if not entry.deleted:
                    found.append(((message.sequence, shard), entry))
            sequence = messages[-1].sequence + 1
        return found[:count]

    def _entry(self, shard: int, message: Stored) -> Registered:
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
            first = await self._reader.asking.page(
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
            page = await self._asking.page(shard, subject, sequence)
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
        """See ``EventStore.forks``."""
        await existing(self._reader.heads, session)
        shard, subject = self._names.shard(session), self._names.of_session("f", session)
        last = await self._reader.heads.last(shard, subject)
        names: list[str] = []
        sequence = 1
        while last is not None and sequence <= last.sequence:
            page = await self._asking.page(shard, subject, sequence)
            messages = page.messages or [await self._asking.next(shard, subject, sequence) or last]
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
