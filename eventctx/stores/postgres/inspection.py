"""Looks at the store as a whole: damage of the schema, and transactions that hold back readers.

No walk over one stream can see either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from eventctx.stores.postgres.connections import ServerConnection
from eventctx.stores.postgres.errors import Refused
from eventctx.stores.postgres.schema import FENCE, MIGRATIONS

_STRAYS: Final = {
    "records belong to no session: their sessions' names were removed": """
SELECT count(*) FROM eventctx.records r LEFT JOIN eventctx.streams s ON s.id = r.stream
WHERE s.id IS NULL""",
    "contents belong to no record": """
SELECT count(*) FROM eventctx.bodies b LEFT JOIN eventctx.records r ON r.pos = b.pos
WHERE r.pos IS NULL""",
    "records have a type whose name was removed": """
SELECT count(*) FROM eventctx.records r LEFT JOIN eventctx.types t ON t.id = r.type
WHERE t.id IS NULL""",
    "sessions were forked from one whose name was removed": """
SELECT count(*) FROM eventctx.streams s LEFT JOIN eventctx.streams p ON p.id = s.parent
WHERE s.parent IS NOT NULL AND p.id IS NULL""",
    "sessions have lost all their records": """
SELECT count(*) FROM eventctx.streams s WHERE NOT EXISTS
  (SELECT FROM eventctx.records r WHERE r.stream = s.id)""",
}

_MISSING: Final = """
SELECT coalesce(sum(n.last - s.first + 1 - n.count), 0)::bigint FROM eventctx.streams s
JOIN (SELECT r.stream, max(r.position) AS last, count(*) AS count FROM eventctx.records r
  GROUP BY r.stream) n ON n.stream = s.id
"""
"""Positions without a record. A deleted session keeps its first position, so its own count."""


def inspect(connection: ServerConnection) -> tuple[tuple[str, ...], int]:
    """The findings, and how many positions hold no record. Never raises for damage."""
    findings: list[str] = []
    for step in (_of_schema, _of_strays):
        try:
            findings.extend(step(connection))
        except Refused as error:
            findings.append(f"the store could not be checked to its end: {error.message}")
    try:
        ((missing,),) = connection.rows(_MISSING)
    except Refused as error:
        findings.append(f"the records could not be counted: {error.message}")
        missing = 0
    return tuple(findings), missing


_IN_SCHEMA: Final = "(SELECT relnamespace FROM pg_class WHERE oid = 'eventctx.meta'::regclass)"
_TRIGGER: Final = re.compile(r"CREATE TRIGGER (\w+) [^;]*? ON eventctx\.(\w+)")
_TRIGGERS: Final = (
    "SELECT t.tgname::text, c.relname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
    "JOIN pg_proc f ON f.oid = t.tgfoid "
    f"WHERE c.relnamespace = {_IN_SCHEMA} AND NOT t.tgisinternal AND NOT "
    f"(f.pronamespace = {_IN_SCHEMA} AND (t.tgname, c.relname, f.proname) IN ("
    "('forget_erased', 'records', 'record_lost_its_body'),"
    "('forget_deleted', 'records', 'record_lost_its_body'),"
    "('forget_erased', 'bodies', 'body_was_lost'), ('forget_deleted', 'bodies', 'body_was_lost')))"
)
_RULES: Final = (
    "SELECT r.rulename::text, c.relname::text FROM pg_rewrite r JOIN pg_class c "
    f"ON c.oid = r.ev_class WHERE c.relnamespace = {_IN_SCHEMA} AND r.rulename <> '_RETURN'"
)
_INDEXES: Final = (
    "SELECT c.relname::text, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    f"WHERE c.relnamespace = {_IN_SCHEMA}"
)
_NEEDED: Final = (
    "records_pkey", "records_place", "streams_pkey", "streams_name", "types_name", "bodies_pkey",
)  # fmt: skip


def _of_schema(connection: ServerConnection) -> Iterator[str]:
    own = {(name, table) for _, sql in MIGRATIONS for name, table in _TRIGGER.findall(sql)}
    for name, table in sorted(set(connection.rows(_TRIGGERS)) - own):
        yield f"a foreign hand added the trigger {name!r} to the table {table!r}"
    for name, table in connection.rows(_RULES):
        yield f"a foreign hand added the rule {name!r} to the table {table!r}"
    indexes: dict[str, bool] = dict(connection.rows(_INDEXES))
    for name in _NEEDED:
        if name not in indexes:
            yield f"the index {name!r} was removed"
        elif not indexes[name]:
            yield f"the index {name!r} is not valid"


def _of_strays(connection: ServerConnection) -> Iterator[str]:
    for problem, query in _STRAYS.items():
        ((count,),) = connection.rows(query)
        if count:
            yield f"{count} {problem}"


# A transaction that stays open for an hour holds back an hour of the log for readers of the whole
# log, though it never touches the store.

NORMAL_SECONDS: Final = 1.0
"""Every append holds the fence for as long as it takes."""

# A role that may not read others' statistics sees who they are, but not when they began.
_HOLDERS: Final = (
    "SELECT h.who, extract(epoch FROM clock_timestamp() - h.since)::float8 FROM ("
    "SELECT 'process ' || a.pid || coalesce(' of ' || a.usename, '') || "
    "coalesce(' (' || nullif(a.application_name, '') || ')', '') AS who, "
    "a.xact_start AS since, a.backend_xid AS xid "
    "FROM pg_stat_activity a WHERE a.backend_xid IS NOT NULL AND a.pid <> pg_backend_pid() "
    "UNION ALL SELECT 'prepared transaction ' || x.gid, x.prepared, x.transaction "
    "FROM pg_prepared_xacts x) h ORDER BY age(h.xid) DESC"
)
_WAITING: Final = (
    "SELECT extract(epoch FROM clock_timestamp())::float8 - min(r.time) / 1e9::float8 "
    f"FROM eventctx.records r WHERE r.pos >= {FENCE}"
)


class Holder(NamedTuple):
    """A transaction under way, and for how many seconds; None where this role may not see it."""

    name: str
    seconds: float | None


def holders(connection: ServerConnection) -> list[Holder]:
    """The transactions that hold the fence back, as far as the server tells: oldest first."""
    return [Holder(*row) for row in connection.rows(_HOLDERS)]


def fence_facts(connection: ServerConnection) -> dict[str, str]:
    """The lag of the fence and the transaction that holds it; nothing while all is well."""
    found = holders(connection)
    seconds = found[0].seconds if found else None
    name = found[0].name if found else "a transaction that is not visible here"
    if seconds is None:
        # Records appended since then wait too: at least so long.
        ((seconds,),) = connection.rows(_WAITING)
    if seconds is None or seconds <= NORMAL_SECONDS:
        return {}
    return {"readers of the whole log wait": f"since {seconds:,.0f} s for {name}"}
