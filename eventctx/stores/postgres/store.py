"""A store in one schema of a PostgreSQL database: for agents on many machines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, cast, get_args

from eventctx.aio import in_own_thread
from eventctx.errors import EventctxError, InvalidSetting, StoreUnavailable
from eventctx.log.record import Draft, Record
from eventctx.log.store import Address, Erasure, StoreDescription
from eventctx.stores.ack import Bell
from eventctx.stores.location import cache_base
from eventctx.stores.postgres.connections import Destination, ServerConnection, parse_url
from eventctx.stores.postgres.durability import SURVIVES, CommitLevel, Durability
from eventctx.stores.postgres.errors import (
    READ_ONLY,
    ConnectionLost,
    Refused,
    loses_connection,
    read_only,
    translate,
)
from eventctx.stores.postgres.inspection import fence_facts
from eventctx.stores.postgres.log import ServerLog
from eventctx.stores.postgres.queries import ServerQueries, Top
from eventctx.stores.postgres.reader import NewsListener, ServerReader
from eventctx.stores.postgres.schema import prepare_schema, tenant_of
from eventctx.stores.postgres.writer import GroupWriter, append
from eventctx.stores.threaded_store import NEXT_LOOK, NO_LIMIT, ThreadedStore, count
from eventctx.stores.threads import StoreThreads

MOST_READERS: Final = 3
"""A process reads on as many connections at once."""

PATIENCE: Final = 60.0
"""Seconds for which a server that was lost in use is looked for."""

_FIRST_SECONDS: Final = 5.0
"""The same for a server that was never reached: a wrong address is more likely than a loss."""

_PAUSE: Final = 0.2


class PostgresStore(ThreadedStore):
    """``EventStore`` in one schema of a PostgreSQL database, 15 or newer.

    Any number of processes on any number of machines may write the same sessions. An awaited append
    survives what the server's own commit survives: durability ``local`` (the default) asks for a
    commit on the server's disk, ``replicated`` for one on the disk of another machine, too.

    A store has one connection to write, up to three to read, and one to hear of news while
    something is subscribed. A server that is lost is looked for again for ``patience`` seconds;
    pending writes are then repeated, and the event ids show which were stored.

    Appends queue up to 64 MiB. Beyond that ``append`` blocks its thread until the server has taken
    the surplus. An object belongs to the process that opened it: after ``os.fork`` every use in the
    child raises StoreUnavailable.
    """

    _append = append
    _log = ServerLog
    _queries = ServerQueries

    def __init__(self, target: Destination, opened: OpenedSchema, patience: float) -> None:
        """Use ``PostgresStore.open``."""
        self._target = target
        self._opened = opened
        self._patience = patience
        place, bell = opened.connection.place, Bell()
        connect = partial(ServerConnection, target)
        writing: GroupWriter | None = None
        if opened.read_only:
            opened.connection.close()
        else:
            writing = GroupWriter(
                opened.connection,
                partial(connect_to_write, target, opened),
                patience,
                opened.durability,
                bell.ring,
            )
        threads = StoreThreads(
            place,
            place,
            writing,
            partial(ServerReader, connect, place, patience),
            bell,
            partial(read_only, place),
            MOST_READERS,
        )
        super().__init__(threads, read_only=opened.read_only)
        self._listener = NewsListener(connect, bell.ring)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        durability: CommitLevel | None = None,
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
        if chosen not in get_args(CommitLevel):
            raise InvalidSetting(
                f"durability: expected one of {get_args(CommitLevel)}, found {chosen!r}"
            )
        try:
            opened = await in_own_thread(
                partial(
                    open_schema,
                    target,
                    wanted=cast(CommitLevel, chosen),
                    create=create and not read_only,
                    read_only=read_only,
                    patience=patience,
                ),
                "eventctx-open",
            )
        except EventctxError:
            raise
        except Exception as error:
            raise translate(error, target.shown) from error
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
    def cache_path(self) -> Path | None:
        """See ``EventStore.cache_path``: in the user's cache folder, by store and tenant."""
        named = self._opened.store_id
        if tenant := self._opened.tenant:
            # One account of this machine may serve several, and none is to see another's names.
            named += f"-{sha256(tenant.encode()).hexdigest()[:16]}"
        return cache_base("postgresql", named)

    async def read_all(
        self, *, after: int = -1, limit: int | None = None, bodies: bool = True
    ) -> AsyncIterator[Record]:
        """See ``EventStore.read_all``. Gives all that was committed before the call.

        Where an older transaction of the server is under way, which could still write in between,
        it waits for its end. Raises StoreUnavailable, which names it, after ``patience`` seconds.
        """
        left = count(limit)
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
            await asyncio.sleep(NEXT_LOOK[min(tries, 5)])
            tries += 1
            # Until all below the last position is settled, an empty page is not the end.
            top = Top(top.last, await self._read(ServerQueries.settled, top.last))

    async def _held_back(self) -> StoreUnavailable:
        blockers = await self._read(ServerQueries.blockers)
        return StoreUnavailable(
            f"{self._threads.place}: expected the transactions of the server that began before the "
            f"last append to end within {self._patience:g} s, but they are still under way: "
            f"{', '.join(blockers) or 'unknown ones'}; end them, or try again"
        )

    async def _news_of_all(self, after: int, bodies: bool) -> tuple[list[Record], bool]:
        # The end is read before the page, so that a commit after it rings the bell.
        top: Top = await self._read(ServerQueries.top)
        if top.last <= after:
            return [], True
        page = await self._read(ServerQueries.page_all, after, top.last, NO_LIMIT, bodies)
        return page, top.settled

    async def erase(
        self,
        bodies: Mapping[str, Mapping[Address, bytes]],
        records: Mapping[str, Draft] = MappingProxyType({}),
    ) -> Erasure:
        """See ``EventStore.erase``. Writes the tables anew, so that the bytes leave their files.

        That locks each table for its length; tables above 1 GiB are left to a ``VACUUM FULL`` of
        the server's administrators, and ``scrubbed`` tells when it was done. The server's
        write-ahead log and its backups hold the bytes for as long as they are kept.
        """
        return await super().erase(bodies, records)

    async def describe(self) -> StoreDescription:
        """See ``EventStore.describe``. It never holds the user's name or password."""
        return cast(StoreDescription, await self._read(describe, self._opened))

    def _watch(self, change: int) -> None:
        self._listener.watch(change)

    def _release(self) -> None:
        """Stop the threads. A server that is lost is waited for ``patience`` seconds. Blocks."""
        if not self._threads.forked:
            self._threads.stop()
            self._listener.stop()


class OpenedSchema(NamedTuple):
    """The first connection of a store, and the facts that it found."""

    connection: ServerConnection
    store_id: str
    tenant: str
    read_only: bool
    durability: Durability


def open_schema(
    target: Destination,
    *,
    wanted: CommitLevel,
    create: bool,
    read_only: bool,
    patience: float | None,
) -> OpenedSchema:
    """Connect, and make the schema ready. Blocks, and waits for a server that is starting.

    Without ``patience`` a server that does not answer at all is given up sooner than one that does.
    Raises ConnectionLost, Refused, NotAStore, StoreTooNew, StoreUnavailable, StoreUnsafe.
    """
    begin, reached = time.monotonic(), patience is not None
    if patience is None:
        patience = PATIENCE
    durability = Durability(wanted, schema=target.schema, patience=patience)
    while True:
        try:
            connection = ServerConnection(target)
            reached = True
            try:
                reading = read_only or _is_read_only(connection)
                if not reading:
                    _make_safe(connection, durability)
                store_id = prepare_schema(
                    connection, create=create and not reading, writable=not reading
                )
                return OpenedSchema(
                    connection, store_id, tenant_of(connection), reading, durability
                )
            except BaseException:
                connection.close()
                raise
        except (ConnectionLost, Refused) as error:
            passing = isinstance(error, ConnectionLost) or loses_connection(error)
            reached = reached or isinstance(error, Refused)
            seconds = patience if reached else _FIRST_SECONDS
            if not passing or time.monotonic() > begin + seconds:
                raise
            time.sleep(_PAUSE)


def connect_to_write(target: Destination, opened: OpenedSchema) -> ServerConnection:
    """Open one more connection that may write the same store, perhaps on another server.

    Raises ConnectionLost, Refused, EventctxError.
    """
    connection = ServerConnection(target)
    try:
        if _is_read_only(connection):
            raise Refused(READ_ONLY, "the server is read-only now")
        _make_safe(connection, opened.durability)
        prepare_schema(connection, create=False, writable=True)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_read_only(connection: ServerConnection) -> bool:
    """Whether the server is a standby, or the user's transactions are read-only."""
    ((setting,),) = connection.rows("SHOW transaction_read_only")
    return bool(setting == "on")


def _make_safe(connection: ServerConnection, durability: Durability) -> None:
    with connection.driver() as driver:
        durability.prepare(driver)


def describe(queries: ServerQueries, opened: OpenedSchema) -> StoreDescription:
    """Describe the store, and what an acknowledged append survives."""
    durability = opened.durability
    with queries.connection.driver() as driver:
        facts = {"durability": durability.wanted, **durability.facts(driver)}
    facts |= fence_facts(queries.connection)
    ((version,),) = queries.connection.rows("SELECT current_setting('server_version')")
    return StoreDescription(
        "postgresql",
        queries.connection.place,
        f"PostgreSQL {version}",
        SURVIVES[durability.wanted],
        facts,
    )
