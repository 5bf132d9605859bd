"""A store in one SQLite file: the default, for one machine and any number of processes on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from eventctx.aio import finish
from eventctx.errors import EventctxError, InvalidSetting
from eventctx.log.record import Draft, Record
from eventctx.log.store import Address, Erasure, StoreDescription
from eventctx.stores.ack import Ack
from eventctx.stores.sqlite_backup import back_up
from eventctx.stores.sqlite_log import Log
from eventctx.stores.sqlite_queries import Queries
from eventctx.stores.sqlite_schema import Durability
from eventctx.stores.sqlite_shared import SharedFile, acquire, release
from eventctx.stores.threaded_store import ThreadedStore, count
from eventctx.stores.threads import closed_error


class SqliteStore(ThreadedStore):
    """``EventStore`` in one SQLite file, with a write-ahead log in its folder while it is open.

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

    _append = Log.append
    _log = Log
    _queries = Queries

    def __init__(self, file: SharedFile, *, read_only: bool = False) -> None:
        """Use ``SqliteStore.open``."""
        super().__init__(file.threads, read_only=read_only or not file.writable)
        self._file = file
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
        StoreReadOnly. SQLite makes two helper files for a store without any, and leaves them.

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
    def cache_path(self) -> Path:
        """See ``EventStore.cache_path``: the file itself."""
        return self._file.path

    @property
    def path(self) -> Path:
        """The absolute path of the database file."""
        return self._file.path

    async def read_all(
        self, *, after: int = -1, limit: int | None = None, bodies: bool = True
    ) -> AsyncIterator[Record]:
        left = count(limit)
        while left > 0:
            page = await self._read(Queries.page_all, after, left, bodies)
            if not page:
                return
            for record in page:
                yield record
            left -= len(page)
            after = page[-1].global_position

    def peek(self, stream: str) -> int | None:
        """See ``PeekingStore.peek``. Takes a few microseconds, up to 25 after a commit."""
        return None if self._closed else self._file.peek(stream)

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
        return await super().erase(bodies, records)

    async def describe(self) -> StoreDescription:
        server, facts = await self._read(Queries.settings)
        # A reading connection reports the setting of its own file, not that of a writer.
        chosen = "full" if self.read_only else self._file.durability
        facts = {"durability": chosen, **facts}
        survives: Any = "power cut" if chosen == "full" else "process"
        return StoreDescription("sqlite", str(self.path), server, survives, facts)

    async def backup(self, path: str | Path) -> None:
        """Copy the store as it is now to a new file, while all go on reading and writing.

        The file is private, and has its name only when it is complete and on the disk. Until then
        the store's log cannot shrink. A cancelled backup leaves no file, and one that is under way
        when the store is closed is finished.

        Raises InvalidSetting (something is there already), StoreFull, StoreReadOnly,
        StoreUnavailable.
        """
        if self._closed:
            raise closed_error(self.path)
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

    async def _finish_writes(self) -> None:
        if self._last is not None:
            # Other stores may use the file for long. Whoever awaited a write got its error.
            with suppress(EventctxError):
                await self._last

    def _release(self) -> None:
        release(self._file)

    def _watch(self, change: int) -> None:
        self._file.reading.watch(change)

    def _write(self, function: Callable[..., Any], *args: Any, **options: int) -> Ack[Any]:
        self._last = super()._write(function, *args, **options)
        return self._last
