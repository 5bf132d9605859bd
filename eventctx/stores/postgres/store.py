"""A store in one schema of a PostgreSQL database: for agents on many machines."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast, get_args

from eventctx.aio import in_own_thread
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
from eventctx.stores.ack import Ack, Bell
from eventctx.stores.location import cache_base
from eventctx.stores.postgres.connections import Destination, ServerConnection, parse_url
from eventctx.stores.postgres.durability import Wanted
from eventctx.stores.postgres.errors import closed, forked, read_only, translated
from eventctx.stores.postgres.log import ServerLog
from eventctx.stores.postgres.opening import (
    PATIENCE,
    OpenedSchema,
    connect_to_write,
    describe,
    open_schema,
)
from eventctx.stores.postgres.queries import PAGE_RECORDS, Page, ServerQueries, Top
from eventctx.stores.postgres.reader import Readers
from eventctx.stores.postgres.subscription import NewsListener
from eventctx.stores.postgres.writer import GroupWriter, append
from eventctx.stores.rules import sizes

_SMALL_JOB_BYTES: Final = 512
_NEXT_LOOK: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Seconds between two looks at a fence that another transaction holds back."""


class PostgresStore:
    """``EventStore`` in one schema of a PostgreSQL database, 15 or newer.

    Any number of processes on any number of machines may write the same sessions. An awaited append
    survives what the server's own commit survives: durability ``local`` (the default) asks for a
    commit on the server's disk, ``replicated`` for one on the disk of another machine, too.

    A store has one connection to write, up to three to read, and one to hear of news while
    something is subscribed. A server that is lost is looked for again for ``patience`` seconds;
    what was under way is then done again, and the ids show what had been stored.

    Appends queue up to 64 MiB. Beyond that ``append`` blocks its thread until the server has taken
    the surplus. An object belongs to the process that opened it: after ``os.fork`` every use in the
    child raises StoreUnavailable.
    """

    def __init__(self, target: Destination, opened: OpenedSchema, patience: float) -> None:
        """Use ``PostgresStore.open``."""
        self._target = target
        self._opened = opened
        self._place = opened.connection.place
        self._patience = patience
        self._closed = False
        self._forked = False
        self._closing = threading.Lock()
        self.read_only = opened.read_only
        self._bell = Bell()
        self._writer: GroupWriter | None = None
        if opened.read_only:
            opened.connection.close()
        else:
            self._writer = GroupWriter(
                opened.connection,
                partial(connect_to_write, target, opened),
                patience,
                opened.durability,
                self._bell.ring,
            )
        self._readers = Readers(partial(ServerConnection, target), self._place, patience)
        self._listener = NewsListener(partial(ServerConnection, target), self._bell.ring)
        _open.add(self)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        durability: Wanted | None = None,
        create: bool = True,
        read_only: bool = False,
        patience: float | None = None,
    ) -> PostgresStore:
        """Open the store at ``postgresql://[user[:password]@]host[:port]/database``.

        Of the URL's parameters ``schema`` (default ``eventctx``) and ``durability`` are the
        store's; all others are libpq's, whose environment variables, password file and service file
        count, too. The schema is created unless ``create`` is false, and brought up to date. On a
        standby, and with ``read_only``, every write raises StoreReadOnly.

        ``patience`` is for how many seconds a server that is lost is looked for (60, but 5 for one
        that was never reached).

        Raises InvalidSetting, NotAStore, StoreTooNew, StoreUnavailable, StoreUnsafe.
        """
        target = parse_url(url)
        chosen = durability or target.options.get("durability") or "local"
        if chosen not in get_args(Wanted):
            raise InvalidSetting(
                f"durability: expected one of {get_args(Wanted)}, found {chosen!r}"
            )
        try:
            opened = await in_own_thread(
                partial(
                    open_schema,
                    target,
                    wanted=cast(Wanted, chosen),
                    create=create and not read_only,
                    read_only=read_only,
                    patience=patience,
                ),
                "eventctx-open",
            )
        except EventctxError:
            raise
        except Exception as error:
            raise translated(error, target.shown) from error
        return cls(target, opened, PATIENCE if patience is None else patience)

    @property
    def destination(self) -> Destination:
        """Where the store is, for a connection of one's own; it holds the password."""
        return self._target

    @property
    def patience(self) -> float:
        """Seconds for which a lost server is looked for."""
        return self._patience

    @property
    def beside(self) -> Path | None:
        """See ``EventStore.beside``: in the user's cache folder, by the store's own id."""
        return cache_base("postgresql", self._opened.store_id)

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        """See ``EventStore.append``. Callable from any thread."""
        return self._write(append, stream, drafts, expected, size=sizes(drafts))

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
            page: Page = await self._read(
                ServerQueries.page, stream, start, stop, backward, left, bodies
            )
            for record in page.records:
                yield record
            left -= len(page.records)
            stop = page.stop
            if not page.records or left <= 0:
                return
            if backward:
                stop = page.records[-1].position - 1
            else:
                start = page.records[-1].position + 1
            if start > stop:
                return

    async def read_all(
        self, *, after: int = -1, limit: int | None = None, bodies: bool = True
    ) -> AsyncIterator[Record]:
        """See ``EventStore.read_all``. Gives all that was committed before the call.

        Where an older transaction of the server is under way, which could still write in between,
        it waits for its end. Raises StoreUnavailable, which names it, after ``patience`` seconds.
        """
        left = _count(limit)
        top: Top = await self._read(ServerQueries.top)
        tries, end = 0, time.monotonic() + self._patience
        while left > 0 and after < top.last:
            page = await self._read(ServerQueries.page_all, after, top.last, left, bodies)
            for record in page:
                yield record
            left -= len(page)
            if page:
                after = page[-1].global_position
                continue
            if top.settled:
                return
            if time.monotonic() > end:
                raise await self._held_back()
            await asyncio.sleep(_NEXT_LOOK[min(tries, 5)])
            tries += 1
            # Until all below the last position is settled, an empty page is not the end.
            top = Top(top.last, await self._read(ServerQueries.settled, top.last))

    async def _held_back(self) -> StoreUnavailable:
        blockers = await self._read(ServerQueries.blockers)
        return StoreUnavailable(
            f"{self._place}: expected the transactions of the server that began before the last "
            f"append to end within {self._patience:g} s, but they are still under way: "
            f"{', '.join(blockers) or 'unknown ones'}; end them, or try again"
        )

    async def head(self, stream: str) -> StreamInfo | None:
        """See ``EventStore.head``."""
        return cast(StreamInfo | None, await self._read(ServerQueries.head, stream))

    async def streams(
        self, *, after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[StreamInfo]:
        """See ``EventStore.streams``."""
        left = _count(limit)
        key = -1 if after is None else await self._read(ServerQueries.stream_key, after)
        while left > 0:
            page, key = await self._read(ServerQueries.streams, key, left)
            for info in page:
                yield info
            left -= len(page)
            if key is None:
                return

    async def forks(self, stream: str) -> list[str]:
        """See ``EventStore.forks``."""
        key = await self._read(ServerQueries.stream_key, stream)
        return cast(list[str], await self._read(ServerQueries.forks, key))

    async def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        """See ``EventStore.bodies``."""
        return cast(list[Body], await self._read(ServerQueries.bodies, stream, addresses))

    async def fork(self, stream: str, at: int, new: str, first: Draft) -> Appended:
        """See ``EventStore.fork``. A retry with the same first record returns the stored one."""
        size = sizes((first,))
        return cast(Appended, await self._write(ServerLog.fork, stream, at, new, first, size=size))

    async def subscribe(
        self, *, stream: str | None = None, after: int = -1, bodies: bool = False
    ) -> AsyncIterator[Record]:
        """See ``EventStore.subscribe``. Waits for a stream that does not exist yet.

        Commits of other processes are noticed at once, or within a second where a notification is
        missed. ``close`` may end a subscription before it has delivered the last records; subscribe
        again after the last one handled.
        """
        if self._closed:
            return
        self._listener.watch(1)
        tries = 0
        try:
            while not self._closed:
                bell = self._bell.listen()
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
                        await asyncio.wait_for(bell, _NEXT_LOOK[min(tries, 5)])
                    tries += 1
        except StoreUnavailable:
            if not self._closed:
                raise
        finally:
            self._listener.watch(-1)

    async def _news(
        self, stream: str | None, after: int, bodies: bool
    ) -> tuple[list[Record], bool]:
        """Records after ``after``, and whether there is nothing more that a bell would not tell."""
        if stream is not None:
            try:
                page = await self._read(
                    ServerQueries.page, stream, after + 1, None, False, PAGE_RECORDS, bodies
                )
            except StreamNotFound:
                return [], True
            return page.records, True
        # Looked at first: what commits after it rings the bell.
        top: Top = await self._read(ServerQueries.top)
        if top.last <= after:
            return [], True
        page_all = await self._read(ServerQueries.page_all, after, top.last, PAGE_RECORDS, bodies)
        return page_all, top.settled

    async def erase(
        self,
        bodies: Mapping[str, Mapping[Address, bytes]],
        records: Mapping[str, Draft] = MappingProxyType({}),
    ) -> Erasure:
        """See ``EventStore.erase``. Writes the tables anew, so that the bytes leave their files.

        That locks each table for its length; tables above 1 GiB are left to a ``VACUUM FULL`` of
        those who look after the server, and ``scrubbed`` tells when it was done. The server's
        write-ahead log and its backups hold the bytes for as long as they are kept.
        """
        size = sizes(records.values())
        return cast(Erasure, await self._write(ServerLog.erase, bodies, records, size=size))

    async def delete(self, stream: str, last: Draft, expected: int) -> Record:
        """See ``EventStore.delete``. Writes the tables anew, as ``erase`` does."""
        size = sizes((last,))
        return cast(Record, await self._write(ServerLog.delete, stream, last, expected, size=size))

    async def set_tombstone(
        self, info: StreamInfo, last: Draft, previous: bytes, records: int
    ) -> Record:
        """See ``TombstoneStore.set_tombstone``."""
        given = (info, last, previous, records)
        return cast(Record, await self._write(ServerLog.set_tombstone, *given, size=sizes((last,))))

    async def scrubbed(self) -> bool:
        """See ``EventStore.scrubbed``: of the tables' files, not of the write-ahead log."""
        return cast(bool, await self._read(ServerQueries.scrubbed))

    async def inspect(self) -> Inspection:
        """See ``EventStore.inspect``."""
        return cast(Inspection, await self._read(ServerQueries.inspect))

    async def describe(self) -> StoreDescription:
        """See ``EventStore.describe``. It never holds the user's name or password."""
        return cast(StoreDescription, await self._read(describe, self._opened))

    async def load_snapshot(self, stream: str, name: str) -> Snapshot | None:
        """See ``EventStore.load_snapshot``."""
        return cast(Snapshot | None, await self._read(ServerQueries.snapshot, stream, name))

    def save_snapshot(self, stream: str, name: str, snapshot: Snapshot) -> None:
        """See ``EventStore.save_snapshot``. Visible to loads after the next awaited write."""
        size = _SMALL_JOB_BYTES + len(snapshot.data)
        self._write(ServerLog.save_snapshot, stream, name, snapshot, size=size)

    async def load_checkpoint(self, name: str) -> int | None:
        """See ``EventStore.load_checkpoint``."""
        return cast(int | None, await self._read(ServerQueries.checkpoint, name))

    async def save_checkpoint(self, name: str, position: int) -> None:
        """See ``EventStore.save_checkpoint``."""
        await self._write(ServerLog.save_checkpoint, name, position)

    async def close(self) -> None:
        """See ``EventStore.close``. A server that is lost is waited for ``patience`` seconds."""
        if self._closed:
            return
        self._closed = True
        if not self._forked:
            await in_own_thread(self._shut, "eventctx-close")
        self._bell.ring()

    def _shut(self) -> None:
        if self._writer is not None:
            self._writer.stop()
        self._bell.ring()
        self._listener.stop()
        self._readers.stop()

    def after_fork(self) -> None:
        """Make every use in a forked child fail."""
        self._forked = True

    def _write(
        self, function: Callable[..., Any], *args: Any, size: int = _SMALL_JOB_BYTES
    ) -> Ack[Any]:
        if self._closed:
            return Ack.failed(closed(self._place))
        if self._forked:
            return Ack.failed(forked(self._place))
        if self._writer is None:
            return Ack.failed(read_only(self._place))
        return self._writer.submit(function, args, size)

    def _read(self, function: Callable[..., Any], *args: Any) -> Ack[Any]:
        if self._closed:
            return Ack.failed(closed(self._place))
        if self._forked:
            return Ack.failed(forked(self._place))
        return self._readers.call(function, *args)


def _count(limit: int | None) -> int:
    return 2**62 if limit is None else max(limit, 0)


_open: weakref.WeakSet[PostgresStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_open):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
