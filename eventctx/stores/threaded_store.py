"""The ``EventStore`` of a driver that blocks: every call is a job of a thread.

A store names its driver's functions (``_log`` writes, ``_queries`` reads) and adds the rest: its
opening, its description, the end of a read of the whole log. The invariants of order, closing and
forks are those of ``threads``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, ClassVar, Final, cast

from eventctx.aio import in_own_thread
from eventctx.errors import StoreUnavailable, StreamNotFound
from eventctx.log.record import Body, Draft, Record
from eventctx.log.store import (
    Address,
    Appended,
    Erasure,
    Expected,
    Inspection,
    Snapshot,
    StreamInfo,
)
from eventctx.stores.ack import Ack
from eventctx.stores.rules import sizes
from eventctx.stores.threads import StoreThreads, closed_error

NO_LIMIT: Final = 2**62

NEXT_LOOK: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Seconds between two looks at records that an open transaction holds back."""

_SMALL_JOB_BYTES: Final = 512


class ThreadedStore:
    """The methods of ``EventStore`` that are equal for all stores with ``StoreThreads``."""

    _append: ClassVar[Callable[..., Any]]
    """The function of an append, which gets the stream, the drafts and the expected version."""
    _log: ClassVar[Any]
    """The class whose functions write; the writer thread has its only instance."""
    _queries: ClassVar[Any]
    """The class whose functions read."""

    def __init__(self, threads: StoreThreads, *, read_only: bool) -> None:
        self.read_only = read_only
        self._threads = threads
        self._closed = False

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        """See ``EventStore.append``. Callable from any thread."""
        return self._write(type(self)._append, stream, drafts, expected, size=sizes(drafts))

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
        left = count(limit)
        while True:
            page, stop = await self._read(
                self._queries.page, stream, start, stop, backward, left, bodies
            )
            for record in page:
                yield record
            left -= len(page)
            if not page or left <= 0:
                return
            if backward:
                stop = page[-1].position - 1
            else:
                start = page[-1].position + 1
            if start > stop:
                return

    async def head(self, stream: str) -> StreamInfo | None:
        return cast(StreamInfo | None, await self._read(self._queries.head, stream))

    async def streams(
        self, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[StreamInfo]:
        left = count(limit)
        key = -1 if after is None else await self._read(self._queries.stream_key, after)
        while left > 0:
            page, key = await self._read(self._queries.streams, key, left)
            for info in page:
                yield info
            left -= len(page)
            if key is None:
                return

    async def forks(self, stream: str) -> list[str]:
        key = await self._read(self._queries.stream_key, stream)
        return cast(list[str], await self._read(self._queries.forks, key))

    async def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        return cast(list[Body], await self._read(self._queries.bodies, stream, addresses))

    async def fork(self, stream: str, at: int, new: str, first: Draft) -> Appended:
        """See ``EventStore.fork``. A retry with the same first record returns the stored one."""
        size = sizes((first,))
        return cast(Appended, await self._write(self._log.fork, stream, at, new, first, size=size))

    async def subscribe(
        self, *, stream: str | None = None, after: int = -1, bodies: bool = False
    ) -> AsyncIterator[Record]:
        """See ``EventStore.subscribe``. Waits for a stream that does not exist yet.

        ``close`` may end a subscription before it has delivered the last records; subscribe again
        after the last one handled.
        """
        if self._closed:
            return
        self._watch(1)
        tries = 0
        try:
            while not self._closed:
                # Before the read, so that a commit after the read rings this bell.
                bell = self._threads.bell.listen()
                page, settled = await self._news(stream, after, bodies)
                for record in page:
                    after = record.global_position if stream is None else record.position
                    yield record
                if page:
                    tries = 0
                elif settled:
                    await bell
                else:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(bell, NEXT_LOOK[min(tries, 5)])
                    tries += 1
        except StoreUnavailable:
            if not self._closed:
                raise
        finally:
            self._watch(-1)

    async def _news(
        self, stream: str | None, after: int, bodies: bool
    ) -> tuple[list[Record], bool]:
        """Records after ``after``, and whether a bell rings for everything that comes later."""
        if stream is None:
            return await self._news_of_all(after, bodies)
        try:
            page, _ = await self._read(
                self._queries.page, stream, after + 1, None, False, NO_LIMIT, bodies
            )
        except StreamNotFound:
            return [], True
        return page, True

    async def _news_of_all(self, after: int, bodies: bool) -> tuple[list[Record], bool]:
        """See ``_news``, for the whole log."""
        return await self._read(self._queries.page_all, after, NO_LIMIT, bodies), True

    def _watch(self, change: int) -> None:
        """Add (1) or remove (-1) a listener for commits of other processes."""
        raise NotImplementedError

    async def erase(
        self,
        bodies: Mapping[str, Mapping[Address, bytes]],
        records: Mapping[str, Draft] = MappingProxyType({}),
    ) -> Erasure:
        size = sizes(records.values())
        return cast(Erasure, await self._write(self._log.erase, bodies, records, size=size))

    async def delete(self, stream: str, last: Draft, expected: int) -> Record:
        """See ``EventStore.delete``. The bytes leave the files as those of ``erase`` do."""
        size = sizes((last,))
        return cast(Record, await self._write(self._log.delete, stream, last, expected, size=size))

    async def set_tombstone(
        self, info: StreamInfo, last: Draft, previous: bytes, records: int
    ) -> Record:
        given = (info, last, previous, records)
        return cast(Record, await self._write(self._log.set_tombstone, *given, size=sizes((last,))))

    async def scrubbed(self) -> bool:
        return cast(bool, await self._read(self._queries.scrubbed))

    async def inspect(self) -> Inspection:
        return cast(Inspection, await self._read(self._queries.inspect))

    async def load_snapshot(self, stream: str, name: str) -> Snapshot | None:
        return cast(Snapshot | None, await self._read(self._queries.snapshot, stream, name))

    def save_snapshot(self, stream: str, name: str, snapshot: Snapshot) -> None:
        """See ``EventStore.save_snapshot``. Visible to loads after the next awaited write."""
        size = _SMALL_JOB_BYTES + len(snapshot.data)
        self._write(self._log.save_snapshot, stream, name, snapshot, size=size)

    async def load_checkpoint(self, name: str) -> int | None:
        return cast(int | None, await self._read(self._queries.checkpoint, name))

    async def save_checkpoint(self, name: str, position: int) -> None:
        await self._write(self._log.save_checkpoint, name, position)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._finish_writes()
        self._threads.bell.ring()
        await in_own_thread(self._release, "eventctx-close")

    async def _finish_writes(self) -> None:
        """Wait for this store's own writes, where ``_release`` may leave the threads running."""

    def _release(self) -> None:
        """Stop the threads, unless another store uses them. Blocks."""
        self._threads.stop()

    def _write(
        self, function: Callable[..., Any], *args: Any, size: int = _SMALL_JOB_BYTES
    ) -> Ack[Any]:
        if self._closed:
            return Ack.failed(closed_error(self._threads.place))
        if self.read_only:
            return Ack.failed(self._threads.read_only())
        return self._threads.write(function, args, size)

    def _read(self, function: Callable[..., Any], *args: Any) -> Ack[Any]:
        if self._closed:
            return Ack.failed(closed_error(self._threads.place))
        return self._threads.read(function, args)


def count(limit: int | None) -> int:
    """How many records a read of at most ``limit`` still gives."""
    return NO_LIMIT if limit is None else max(limit, 0)
