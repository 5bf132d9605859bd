"""Erased bytes must leave the tables' files, not only the tables.

An update or a deletion leaves the old row in its page, and a vacuum that frees it does not
overwrite it. Only a table that is written anew (VACUUM FULL) has no such pages, and only if no
transaction could still want the old rows while it was. So a note says which file the table had and
which transaction erased, and the bytes are gone when the table has another file that was begun
after every transaction that is older than the erasure had ended.

A table of any size is locked while it is written anew. Tables above ``MOST_BYTES`` are left to the
administrators of the server, and the note tells when they did it.
"""

from __future__ import annotations

import logging
from typing import Final

from eventctx.stores.postgres import encoding
from eventctx.stores.postgres.connections import ServerConnection, in_schema
from eventctx.stores.postgres.errors import Refused

_log = logging.getLogger("eventctx.stores")

MOST_BYTES: Final = 2**30
"""The largest table, with its contents, that is written anew without being asked."""

LOCK_SECONDS: Final = 2
"""Longest wait for the lock on a table; other users of the table wait as long meanwhile."""

TABLES: Final = ("records", "bodies", "snapshots")

_UNSCRUBBED: Final = """
SELECT c.relname::text, pg_total_relation_size(c.oid) FROM eventctx.scrubs n
JOIN pg_class c ON c.oid = n.relation
WHERE c.relfilenode = n.file
  OR age(c.relfrozenxid) >= age((n.transaction::xid8)::xid)
"""
_CLEAN: Final = """
DELETE FROM eventctx.scrubs n WHERE NOT EXISTS (
  SELECT FROM pg_class c WHERE c.oid = n.relation
  AND (c.relfilenode = n.file OR age(c.relfrozenxid) >= age((n.transaction::xid8)::xid)))
"""
_NOTE: Final = """
INSERT INTO eventctx.scrubs(relation, file, transaction)
SELECT c.oid, c.relfilenode, pg_current_xact_id()::text FROM pg_class c
WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'eventctx.meta'::regclass)
  AND c.relname = ANY($1)
ON CONFLICT (tenant, relation) DO UPDATE
SET file = excluded.file, transaction = excluded.transaction
"""


def note_erasure(connection: ServerConnection, tables: tuple[str, ...]) -> None:
    """Note, in the transaction that erases, that old rows lie in the files of these tables."""
    names = encoding.blobs(encoding.TEXTS, [name.encode() for name in tables])
    connection.rows(_NOTE, (encoding.TEXTS,), (names,))


def unscrubbed(connection: ServerConnection) -> dict[str, int]:
    """The tables whose files may hold erased bytes, with their sizes in bytes."""
    return dict(connection.rows(_UNSCRUBBED))


def scrub(connection: ServerConnection) -> bool:
    """Write the noted tables anew, if they are small enough; true if no erased bytes are left."""
    for table, size in unscrubbed(connection).items():
        if size <= MOST_BYTES:
            _rewrite(connection, table)
    connection.rows(_CLEAN)
    left = unscrubbed(connection)
    if not left:
        return True
    names = ", ".join([f"{connection.schema}.{name}" for name in sorted(left)])
    _log.warning(
        "%s: what was erased may stay legible in the server's files of %s; it is gone when their "
        "owner writes them anew: VACUUM FULL %s",
        connection.place, names, names,
    )  # fmt: skip
    return False


def _rewrite(connection: ServerConnection, table: str) -> None:
    connection.script(f"SET lock_timeout = '{LOCK_SECONDS}s'")
    try:
        sql = in_schema(f"VACUUM (FULL, ANALYZE) eventctx.{table}", connection.schema)
        connection.script(sql, seconds=None)
    except Refused as error:
        _log.info("%s: %s is not written anew: %s", connection.place, table, error.message)
    finally:
        connection.script("SET lock_timeout = 0")
