"""A store in one SQLite file: the default, for one machine and any number of processes on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from eventctx.errors import InvalidSetting, StoreUnavailable, StreamNotFound
from eventctx.log.record import Body, Draft, Record
from eventctx.log.store import Address, Appended, Expected, Snapshot, StreamInfo
from eventctx.stores.ack import Ack, Bell
from eventctx.stores.rules import sizes
from eventctx.stores.sqlite_errors import read_only
from eventctx.stores.sqlite_log import Log
from eventctx.stores.sqlite_queries import PAGE_RECORDS, Queries
from eventctx.stores.sqlite_reader import Reader
from eventctx.stores.sqlite_schema import Durability, Opened, open_file
from eventctx.stores.sqlite_writer import Writer

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

    An object belongs to the process that opened it: do not use it after ``os.fork``.
    """

    def __init__(self, opened: Opened, path: Path) -> None:
        """Use ``SqliteStore.open``."""
        self._path = path
        self._bell = Bell()
        self._closed = False
        self._shut_lock = threading.Lock()
        self._connection = opened.writer
        self._reader = Reader(opened.reader, path, self._bell.ring)
        self._writer = (
            None
            if opened.writer is None
            else Writer(opened.writer, path, opened.lock, self._bell.ring)
        )

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        durability: Durability = "full",
        create: bool = True,
        lock_timeout: float = 5.0,
    ) -> SqliteStore:
        """Open the store at ``path``, creating it unless ``create`` is false.

        A file or folder without write permission is opened for reading. ``lock_timeout`` is the
        longest wait, in seconds, while another process writes. Raises NotAStore, StoreTooNew,
        StoreUnavailable, StoreReadOnly (new, but not writable), StoreFull, InvalidSetting.
        """
        if durability not in get_args(Durability):
            raise InvalidSetting(
                f"durability: expected one of {get_args(Durability)}, found {durability!r}"
            )
        place, opened = await asyncio.to_thread(
            open_file, path, durability=durability, create=create, lock_timeout=lock_timeout
        )
        return cls(opened, place)

    @property
    def path(self) -> Path:
        """The absolute path of the database file."""
        return self._path

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
            page, stop = await self._reader.call(
                Queries.page, stream, start, stop, backward, left, bodies
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

    async def read_all(
        self, *, after: int = -1, limit: int | None = None, bodies: bool = True
    ) -> AsyncIterator[Record]:
        """See ``EventStore.read_all``."""
        left = _count(limit)
        while left > 0 and (page := await self._reader.call(Queries.page_all, after, left, bodies)):
            for record in page:
                yield record
            left -= len(page)
            after = page[-1].global_position

    async def head(self, stream: str) -> StreamInfo | None:
        """See ``EventStore.head``."""
        return cast(StreamInfo | None, await self._reader.call(Queries.head, stream))

    async def streams(self) -> list[StreamInfo]:
        """See ``EventStore.streams``."""
        return cast(list[StreamInfo], await self._reader.call(Queries.streams))

    async def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        """See ``EventStore.bodies``."""
        return cast(list[Body], await self._reader.call(Queries.bodies, stream, addresses))

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
        self._reader.watch(1)
        try:
            while not self._closed:
                bell = self._bell.listen()
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
            self._reader.watch(-1)

    async def _news(self, stream: str | None, after: int, bodies: bool) -> list[Record]:
        if stream is None:
            page = await self._reader.call(Queries.page_all, after, PAGE_RECORDS, bodies)
        else:
            try:
                page, _ = await self._reader.call(
                    Queries.page, stream, after + 1, None, False, PAGE_RECORDS, bodies
                )
            except StreamNotFound:
                page = []
        return cast(list[Record], page)

    async def erase(self, stream: str, bodies: Mapping[Address, bytes]) -> int:
        """See ``EventStore.erase``. Overwrites the bytes in the file, and empties its log.

        Emptying the log waits up to ``lock_timeout`` for reads of other processes; if they do not
        end in time, the log keeps the old bytes until a later checkpoint or the last close.

        Drops the snapshots of all streams that can read the records, as they may hold erased
        content. Raises StreamNotFound, and LogCorrupted for an address without a body.
        """
        return cast(int, await self._write(Log.erase, stream, bodies))

    async def load_snapshot(self, stream: str, name: str) -> Snapshot | None:
        """See ``EventStore.load_snapshot``."""
        return cast(Snapshot | None, await self._reader.call(Queries.snapshot, stream, name))

    def save_snapshot(self, stream: str, name: str, snapshot: Snapshot) -> None:
        """See ``EventStore.save_snapshot``. Visible to loads after the next awaited write."""
        size = _SMALL_JOB_BYTES + len(snapshot.data)
        self._write(Log.save_snapshot, stream, name, snapshot, size=size)

    async def load_checkpoint(self, name: str) -> int | None:
        """See ``EventStore.load_checkpoint``."""
        return cast(int | None, await self._reader.call(Queries.checkpoint, name))

    async def save_checkpoint(self, name: str, position: int) -> None:
        """See ``EventStore.save_checkpoint``."""
        await self._write(Log.save_checkpoint, name, position)

    async def close(self) -> None:
        """See ``EventStore.close``."""
        await asyncio.to_thread(self._shut)

    def _write(
        self, function: Callable[..., Any], *args: Any, size: int = _SMALL_JOB_BYTES
    ) -> Ack[Any]:
        if self._writer is None:
            return Ack.failed(read_only(self._path))
        return self._writer.submit(function, args, size)

    def _shut(self) -> None:
        with self._shut_lock:
            if self._closed:
                return
            if self._writer is not None:
                self._writer.stop()
            self._closed = True
            self._bell.ring()
            self._reader.stop()
            # The writer closes last: the last connection moves the log into the file, and removes
            # the log.
            if self._connection is not None:
                self._connection.close(True)


def _count(limit: int | None) -> int:
    return 2**62 if limit is None else max(limit, 0)
