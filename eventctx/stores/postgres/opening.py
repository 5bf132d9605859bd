"""Connects to a server, checks it, and says what it is."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from eventctx.log.store import StoreDescription
from eventctx.stores.postgres import fence
from eventctx.stores.postgres.connections import Destination, ServerConnection
from eventctx.stores.postgres.durability import SURVIVES, CommitLevel, Durability
from eventctx.stores.postgres.errors import READ_ONLY, ConnectionLost, Refused, loses_connection
from eventctx.stores.postgres.queries import ServerQueries
from eventctx.stores.postgres.schema import prepare_schema

PATIENCE: Final = 60.0
"""Seconds for which a server that was lost in use is looked for."""

_FIRST_SECONDS: Final = 5.0
"""The same for a server that was never reached: a wrong address is more likely than a loss."""

_PAUSE: Final = 0.2


class OpenedSchema(NamedTuple):
    """A store's first connection, and what is known of the store behind it."""

    connection: ServerConnection
    store_id: str
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
                return OpenedSchema(connection, store_id, reading, durability)
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
    """One more connection to the same store, perhaps on another server, which may write.

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
    """What the store is, and what an acknowledged append survives."""
    durability = opened.durability
    with queries.connection.driver() as driver:
        facts = {"durability": durability.wanted, **durability.facts(driver)}
    facts |= fence.facts(queries.connection)
    ((version,),) = queries.connection.rows("SELECT current_setting('server_version')")
    return StoreDescription(
        "postgresql",
        queries.connection.place,
        f"PostgreSQL {version}",
        SURVIVES[durability.wanted],
        facts,
    )
