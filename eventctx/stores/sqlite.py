"""A store in one SQLite file: the default, for one machine and any number of processes on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_args

from eventctx.aio import finish, in_own_thread
from eventctx.errors import EventctxError, InvalidSetting, StoreUnavailable, StreamNotFound
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
from eventctx.stores.rules import sizes
from eventctx.stores.sqlite_backup import back_up
from eventctx.stores.sqlite_errors import closed, read_only
from eventctx.stores.sqlite_log import Log
from eventctx.stores.sqlite_queries import PAGE_RECORDS, Queries
from eventctx.stores.sqlite_schema import Durability
from eventctx.stores.sqlite_shared import SharedFile, acquire, release

_SMALL_JOB_BYTES = 512


class SqliteStore:
    """``EventStore`` in one SQLite file, with a write-ahead log beside it while it is open.

    Durability ``full`` (the default): an awaited append survives a power cut, because the commit
    waits for the disk. ``normal``: SQLite waits for the disk only when it moves the log into the
    file (about every 4 MB). A crash of the process loses nothing, but a power cut or a crash of the
    operating system may lose the appends of the last seconds to minutes, acknowledged ones too; the
    records left are always a prefix in the order of the log. Neither setting helps on a disk that
    reports a flush that it has not done.

    Appends queue up to 64 MiB. Beyond that ``append`` blocks its thread until the disk has taken
    the surplus, so that appends which nobody awaits cannot fill the memory.

    All stores that a process opens on one file share its connections and threads. An object
    belongs to the process that opened it: after ``os.fork`` every use in the child raises
    StoreUnavailable. So does an append after the file was removed or replaced by another one.
    """

    def __init__(self, file: SharedFile, *, read_only: bool = False) -> None:
        """Use ``SqliteStore.open``."""
        self._file = file
        self.read_only = read_only or not file.writable
        self._closed = False
        self._last: Ack[Any] | None = None

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        durability: Durability = "full",
        create: bool = True,
        lock_timeout: float = 5.0,
        read_only: bool = False,
    ) -> SqliteStore:
        """Open the store at ``path``, creating it unless ``create`` is false.

        A file or folder without write permission is opened for reading. With ``read_only`` every
        file is: nothing is created, the file and its log are never written, and every write raises
        StoreReadOnly. SQLite puts two helper files beside a store without any, and leaves them.

        ``lock_timeout`` is the longest wait, in seconds, while another process writes. Where this
        process has the file open already, the stronger durability and the longer wait hold for all.

        Raises NotAStore, StoreTooNew, StoreUnavailable, StoreReadOnly (new, but not writable),
        StoreFull, InvalidSetting.
        """
        if durability not in get_args(Durability):
            raise InvalidSetting(
                f"durability: expected one of {get_args(Durability)}, found {durability!r}"
            )
        file = await asyncio.to_thread(
            acquire,
            Path(path),
            durability=durability,
            create=create and not read_only,
            lock_timeout=lock_timeout,
            read_only=read_only,
        )
        return cls(file, read_only=read_only)

    @property
    def beside(self) -> Path:
        """See ``EventStore.beside``: the file itself."""
        return self._file.path

    @property
    def path(self) -> Path:
        """The absolute path of the database file."""
        return self._file.path

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        """See ``EventStore.append``. Callable from any thread."""
        return self._write(Log.append, stream, drafts, expected, size=sizes(drafts))

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
        left = _count(limit)
        while True:
            page, stop = await self._read(Queries.page, stream, start, stop, backward, left, bodies)
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

    async def read_all(
        self, *, after: int = -1, limit: int | None = None, bodies: bool = True
    ) -> AsyncIterator[Record]:
        """See ``EventStore.read_all``."""
        left = _count(limit)
        while left > 0:
            page = await self._read(Queries.page_all, after, left, bodies)
            if not page:
                return
            for record in page:
                yield record
            left -= len(page)
            after = page[-1].global_position

    async def head(self, stream: str) -> StreamInfo | None:
        """See ``EventStore.head``."""
        return cast(StreamInfo | None, await self._read(Queries.head, stream))

    def peek(self, stream: str) -> int | None:
        """See ``PeekingStore.peek``. Takes a few microseconds, up to 25 behind a commit."""
        return None if self._closed else self._file.peek(stream)

    async def streams(
        self, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[StreamInfo]:
        """See ``EventStore.streams``."""
        left = _count(limit)
        key = -1 if after is None else await self._read(Queries.stream_key, after)
        while left > 0:
            page, key = await self._read(Queries.streams, key, left)
            for info in page:
                yield info
            left -= len(page)
            if key is None:
                return

    async def forks(self, stream: str) -> list[str]:
        """See ``EventStore.forks``."""
        key = await self._read(Queries.stream_key, stream)
        return cast(list[str], await self._read(Queries.forks, key))

    async def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        """See ``EventStore.bodies``."""
        return cast(list[Body], await self._read(Queries.bodies, stream, addresses))

    async def fork(self, stream: str, at: int, new: str, first: Draft) -> Appended:
        """See ``EventStore.fork``. A retry with the same first record returns the stored one."""
        size = sizes((first,))
        return cast(Appended, await self._write(Log.fork, stream, at, new, first, size=size))

    async def subscribe(
        self, *, stream: str | None = None, after: int = -1, bodies: bool = False
    ) -> AsyncIterator[Record]:
        """See ``EventStore.subscribe``. Waits for a stream that does not exist yet.

        Commits of other processes are noticed within about 20 ms. ``close`` may end a subscription
        before it has delivered the last records; subscribe again after the last one handled.
        """
        self._file.reader.watch(1)
        try:
            while not self._closed:
                bell = self._file.bell.listen()
                page = await self._news(stream, after, bodies)
                for record in page:
                    after = record.global_position if stream is None else record.position
                    yield record
                if not page:
                    await bell
        except StoreUnavailable:
            if not self._closed:
                raise
        finally:
            self._file.reader.watch(-1)

    async def _news(self, stream: str | None, after: int, bodies: bool) -> list[Record]:
        if stream is None:
            page = await self._read(Queries.page_all, after, PAGE_RECORDS, bodies)
        else:
            try:
                page, _ = await self._read(
                    Queries.page, stream, after + 1, None, False, PAGE_RECORDS, bodies
                )
            except StreamNotFound:
                page = []
        return cast(list[Record], page)

    async def erase(
        self,
        bodies: Mapping[str, Mapping[Address, bytes]],
        records: Mapping[str, Draft] = MappingProxyType({}),
    ) -> Erasure:
        """See ``EventStore.erase``. Overwrites the bytes in the file, and empties its log.

        Emptying the log waits up to ``lock_timeout`` for reads of other processes; if they do not
        end in time, the log keeps the old bytes until a later checkpoint or the last close.

        Drops the snapshots of all streams that can read the records, as they may hold erased
        content. Raises StreamNotFound, and LogCorrupted for an address without a body.
        """
        size = sizes(records.values())
        return cast(Erasure, await self._write(Log.erase, bodies, records, size=size))

    async def delete(self, stream: str, last: Draft, expected: int) -> Record:
        """See ``EventStore.delete``. Overwrites the bytes in the file, and empties its log."""
        size = sizes((last,))
        return cast(Record, await self._write(Log.delete, stream, last, expected, size=size))

    async def set_tombstone(
        self, info: StreamInfo, last: Draft, previous: bytes, records: int
    ) -> Record:
        """See ``TombstoneStore.set_tombstone``."""
        given = (info, last, previous, records)
        return cast(Record, await self._write(Log.set_tombstone, *given, size=sizes((last,))))

    async def scrubbed(self) -> bool:
        """See ``EventStore.scrubbed``."""
        return cast(bool, await self._read(Queries.scrubbed))

    async def inspect(self) -> Inspection:
        """See ``EventStore.inspect``."""
        return cast(Inspection, await self._read(Queries.inspect))

    async def describe(self) -> StoreDescription:
        """See ``EventStore.describe``."""
        server, facts = await self._read(Queries.settings)
        # A reading connection says what its own file is set to, not what a writer waits for.
        chosen = "full" if self.read_only else self._file.durability
        facts = {"durability": chosen, **facts}
        survives: Any = "power cut" if chosen == "full" else "process"
        return StoreDescription("sqlite", str(self.path), server, survives, facts)

    async def load_snapshot(self, stream: str, name: str) -> Snapshot | None:
        """See ``EventStore.load_snapshot``."""
        return cast(Snapshot | None, await self._read(Queries.snapshot, stream, name))

    def save_snapshot(self, stream: str, name: str, snapshot: Snapshot) -> None:
        """See ``EventStore.save_snapshot``. Visible to loads after the next awaited write."""
        size = _SMALL_JOB_BYTES + len(snapshot.data)
        self._write(Log.save_snapshot, stream, name, snapshot, size=size)

    async def load_checkpoint(self, name: str) -> int | None:
        """See ``EventStore.load_checkpoint``."""
        return cast(int | None, await self._read(Queries.checkpoint, name))

    async def save_checkpoint(self, name: str, position: int) -> None:
        """See ``EventStore.save_checkpoint``."""
        await self._write(Log.save_checkpoint, name, position)

    async def backup(self, path: str | Path) -> None:
        """Copy the store as it is now to a new file, while all go on reading and writing.

        The file is private, and has its name only when it is complete and on the disk. Until then
        the log beside the store cannot shrink. A cancelled backup leaves nothing behind, and one
        that is under way when the store is closed is finished.

        Raises InvalidSetting (something is there already), StoreFull, StoreReadOnly,
        StoreUnavailable.
        """
        if self._closed:
            raise closed(self.path)
        stop = threading.Event()
        copying = asyncio.ensure_future(
            asyncio.to_thread(back_up, self._file, Path(path), stop.is_set)
        )
        try:
            await asyncio.shield(copying)
        except asyncio.CancelledError:
            stop.set()
            await finish(asyncio.wait({copying}))
            raise

    async def close(self) -> None:
        """See ``EventStore.close``."""
        if self._closed:
            return
        self._closed = True
        if self._last is not None:
            # Others may use the file for long. Errors went to those who awaited the writes.
            with suppress(EventctxError):
                await self._last
        self._file.bell.ring()
        await in_own_thread(partial(release, self._file), "eventctx-close")

    def _write(
        self, function: Callable[..., Any], *args: Any, size: int = _SMALL_JOB_BYTES
    ) -> Ack[Any]:
        if self._closed:
            return Ack.failed(closed(self.path))
        if self.read_only:
            return Ack.failed(read_only(self.path))
        self._last = self._file.write(function, args, size)
        return self._last

    def _read(self, function: Callable[..., Any], *args: Any) -> Ack[Any]:
        if self._closed:
            return Ack.failed(closed(self.path))
        return self._file.read(function, *args)


def _count(limit: int | None) -> int:
    return 2**62 if limit is None else max(limit, 0)
