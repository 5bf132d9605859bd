"""A store in the streams of a replicated NATS JetStream cluster."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from weakref import WeakSet

from eventctx.aio import in_own_thread
from eventctx.errors import EventctxError, StoreReadOnly
from eventctx.log.record import Body, Draft, Record
from eventctx.log.store import (
    Address,
    Appended,
    Erasure,
    Expected,
    Inspection,
    Snapshot,
    StoreDescription,
    StreamInfo,
)
from eventctx.stores.ack import Ack
from eventctx.stores.jetstream.address import parse
from eventctx.stores.jetstream.connection import ServerLink
from eventctx.stores.jetstream.creating import StoreParts, assemble
from eventctx.stores.jetstream.registry import inspect
from eventctx.stores.location import cache_base

_log = logging.getLogger("eventctx.stores")

T = TypeVar("T")


class JetStreamStore:
    """``EventStore`` in a JetStream cluster of three servers or more; it survives the loss of one.

    Open it with ``JetStreamStore.open``, or ``eventctx.open("nats://…")``. An awaited append is on
    the disks of a majority of the servers. All reads are checked against what the leader of the
    session's stream has, whole or not at all. Several processes may use one store.

    Appends queue up to 64 MiB; beyond that ``append`` blocks its thread. After ``os.fork`` every
    use in the child raises StoreUnavailable.
    """

    def __init__(self, link: ServerLink, parts: StoreParts, *, read_only: bool) -> None:
        """Use ``JetStreamStore.open``."""
        self._link = link
        self._parts = parts
        self.read_only = read_only
        self._closed = False
        self._cache_path = cache_base("jetstream", parts.meta.store_id)
        _open.add(self)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        create: bool = True,
        read_only: bool = False,
        patience: float = 60.0,
    ) -> JetStreamStore:
        """Open the store at ``url``, and make it unless ``create`` is false.

        ``patience`` is the longest wait, in seconds, for a lost server or a missing leader before
        StoreUnavailable is raised. See ``docs/reference/storage.md`` for the URL.

        Raises StoreUnsafe for servers that could lose an acknowledged append or cannot be checked,
        StoreUnavailable, NotAStore, StoreTooNew, InvalidSetting.
        """
        link = ServerLink(parse(url), patience=patience)
        try:
            parts = await link.run(assemble(link, create=create, read_only=read_only))
            return cls(link, parts, read_only=read_only)
        except BaseException:
            await asyncio.shield(in_own_thread(link.end, "eventctx-close"))
            raise

    @property
    def cache_path(self) -> Path:
        """See ``EventStore.cache_path``: in the user's cache folder, by the store's own id."""
        return self._cache_path

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        """See ``EventStore.append``. Callable from any thread."""
        refused = self._refusal()
        if refused is not None:
            return Ack.failed(refused)
        return self._parts.writer.append(stream, drafts, expected)

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
        reader = self._parts.reader
        scan = await self._run(
            reader.scan(
                stream, start=start, stop=stop, backward=backward, limit=limit, bodies=bodies
            )
        )
        while page := await self._run(scan.page()):
            for record in page:
                yield record

    async def read_all(
        self, *, after: int = -1, limit: int | None = None, bodies: bool = True
    ) -> AsyncIterator[Record]:
        log = self._parts.global_scan
        scan = await self._run(log.scan(after=after, limit=limit, bodies=bodies))
        while page := await self._run(scan.page()):
            for record in page:
                yield record

    async def head(self, stream: str) -> StreamInfo | None:
        return await self._run(self._parts.reader.head(stream))

    async def streams(
        self, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[StreamInfo]:
        left = limit
        while left is None or left > 0:
            page = await self._run(self._parts.registry.page(after, left))
            for info in page:
                yield info
            if not page:
                return
            after = page[-1].stream
            left = None if left is None else left - len(page)

    async def forks(self, stream: str) -> list[str]:
        return await self._run(self._parts.registry.forks(stream))

    async def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        return await self._run(self._parts.reader.bodies(stream, addresses))

    async def fork(self, stream: str, at: int, new: str, first: Draft) -> Appended:
        """See ``EventStore.fork``. A retry with the same first record returns the stored one."""
        return await self._write(lambda: self._parts.families.fork(stream, at, new, first))

    async def subscribe(
        self, *, stream: str | None = None, after: int = -1, bodies: bool = False
    ) -> AsyncIterator[Record]:
        """See ``EventStore.subscribe``. Waits for a stream that does not exist yet."""
        async with aclosing(self._parts.following.subscribe(stream, after, bodies)) as records:
            async for record in records:
                yield record

    async def erase(
        self,
        bodies: Mapping[str, Mapping[Address, bytes]],
        records: Mapping[str, Draft] = MappingProxyType({}),
    ) -> Erasure:
        """See ``EventStore.erase``. Waits until the bytes are gone from the servers' files.

        While a server is down they are not; that is finished when it is back.
        """
        return await self._write(lambda: self._parts.eraser.erase(bodies, records))

    async def delete(self, stream: str, last: Draft, expected: int) -> Record:
        """See ``EventStore.delete``. Waits as ``erase`` does."""
        return await self._write(lambda: self._parts.families.delete(stream, last, expected))

    async def set_tombstone(
        self, info: StreamInfo, last: Draft, previous: bytes, records: int
    ) -> Record:
        families = self._parts.families
        return await self._write(lambda: families.set_tombstone(info, last, previous, records))

    async def scrubbed(self) -> bool:
        """See ``EventStore.scrubbed``. This covers the files of all servers, Raft logs too."""
        return await self._run(self._parts.destroyer.scrubbed())

    async def inspect(self) -> Inspection:
        return await self._run(inspect(self._parts.reader))

    async def describe(self) -> StoreDescription:
        return await self._run(self._parts.describe())

    async def load_snapshot(self, stream: str, name: str) -> Snapshot | None:
        return await self._run(self._parts.caches.load_snapshot(stream, name))

    def save_snapshot(self, stream: str, name: str, snapshot: Snapshot) -> None:
        """See ``EventStore.save_snapshot``. One that is too large for a message is not kept."""
        if self._refusal() is None:
            self._link.run(self._parts.caches.save_snapshot(stream, name, snapshot))

    async def load_checkpoint(self, name: str) -> int | None:
        return await self._run(self._parts.caches.load_checkpoint(name))

    async def save_checkpoint(self, name: str, position: int) -> None:
        await self._write(lambda: self._parts.caches.save_checkpoint(name, position))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        _open.discard(self)
        self._parts.following.close()
        with suppress(EventctxError):
            await self._link.run(self._parts.idle())
        await in_own_thread(self._link.end, "eventctx-close")

    def _refusal(self) -> EventctxError | None:
        if self._closed:
            return self._link.gone()
        if self.read_only:
            return StoreReadOnly(
                f"{self._link.address.place}: the store was opened to read only; open it without "
                "read_only to write"
            )
        return self._parts.unsafe

    def _run(self, work: Coroutine[Any, Any, T]) -> Ack[T]:
        if self._closed:
            work.close()
            return Ack.failed(self._link.gone())
        return self._link.run(work)

    def _write(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Ack[T]:
        refused = self._refusal()
        return Ack.failed(refused) if refused is not None else self._link.run(work())

    def flush(self) -> None:
        """Wait, in this thread, until all that was appended is stored, or ``patience`` is over."""
        ended = threading.Event()

        async def wait() -> None:
            try:
                await self._parts.idle()
            finally:
                ended.set()

        if not self._closed and self._link.process == os.getpid():
            self._link.run(wait())
            ended.wait(self._link.patience)


_open: WeakSet[JetStreamStore] = WeakSet()

if hasattr(os, "register_at_fork"):
    # The threads are the parent's.
    os.register_at_fork(after_in_child=_open.clear)


@atexit.register
def _write_what_is_queued() -> None:
    """Store appends that nobody awaited, when the interpreter ends without ``close``."""
    for store in list(_open):
        store.flush()
