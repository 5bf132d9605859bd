"""Connects to a server, checks it, and says what it is.

Here is the place for what must hold of every connection before it is used (``checked``), and of
every commit before it is acknowledged (``OpenedSchema.check_commit``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from eventctx.log.store import StoreDescription
from eventctx.stores.postgres.connections import Destination, ServerConnection
from eventctx.stores.postgres.errors import ConnectionLost, Refused, loses_connection
from eventctx.stores.postgres.queries import ServerQueries
from eventctx.stores.postgres.schema import prepare_schema

_PAUSE: Final = 0.2
_SHOWN: Final = (
    "synchronous_commit", "synchronous_standby_names", "fsync", "full_page_writes",
    "data_checksums",
)  # fmt: skip


class OpenedSchema(NamedTuple):
    """A store's first connection, and what is known of the store behind it."""

    connection: ServerConnection
    store_id: str
    read_only: bool
    durability: str
    check_commit: Callable[[ServerConnection], None]


def open_target(
    target: Destination, *, durability: str, create: bool, read_only: bool, patience: float
) -> OpenedSchema:
    """Connect, and make the schema ready. Blocks, and waits for a server that is starting.

    Raises ConnectionLost, Refused, NotAStore, StoreTooNew, StoreUnavailable.
    """
    end = time.monotonic() + patience
    while True:
        try:
            connection = ServerConnection(target)
            try:
                return _prepared(connection, durability, create, read_only)
            except BaseException:
                connection.close()
                raise
        except (ConnectionLost, Refused) as error:
            passing = isinstance(error, ConnectionLost) or loses_connection(error)
            if not passing or time.monotonic() > end:
                raise
            time.sleep(_PAUSE)


def _prepared(
    connection: ServerConnection, durability: str, create: bool, read_only: bool
) -> OpenedSchema:
    # A user's ``default_transaction_read_only`` counts as well as a standby's recovery.
    ((setting,),) = connection.rows("SHOW transaction_read_only")
    standby = setting == "on"
    reading = read_only or standby
    store_id = prepare_schema(connection, create=create and not standby, writable=not reading)
    return OpenedSchema(connection, store_id, reading, durability, check_commit)


def connect_again(
    target: Destination, opened: OpenedSchema, *, reading: bool = False
) -> ServerConnection:
    """One more connection, to the same store. Raises ConnectionLost, Refused, EventctxError."""
    connection = ServerConnection(target)
    try:
        if not reading:
            ((setting,),) = connection.rows("SHOW transaction_read_only")
            if setting == "on":
                raise Refused("25006", "the server is read-only now")
        prepare_schema(connection, create=False, writable=not reading)
    except BaseException:
        connection.close()
        raise
    return connection


def check_commit(connection: ServerConnection) -> None:
    """Called after a commit and before its acknowledgement; raises if it does not count."""
    connection.notices.clear()


def describe(queries: ServerQueries, opened: OpenedSchema) -> StoreDescription:
    """What the store is, and what an acknowledged append survives."""
    connection = queries.connection
    facts = {"durability": opened.durability}
    for name in _SHOWN:
        ((value,),) = connection.rows(f"SELECT coalesce(current_setting('{name}', true), '')")
        facts[name] = value
    ((version,),) = connection.rows("SELECT current_setting('server_version')")
    safe = facts["fsync"] == "on" and facts["synchronous_commit"] != "off"
    return StoreDescription(
        "postgresql",
        connection.place,
        f"PostgreSQL {version}",
        "power cut" if safe else "process",
        facts,
    )
