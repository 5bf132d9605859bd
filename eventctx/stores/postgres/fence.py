"""Who holds the fence back: the transactions under way that whoever reads the whole log waits for.

One that stays open for an hour holds back an hour of the log, though it never touches the store.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from eventctx.stores.postgres.connections import ServerConnection
from eventctx.stores.postgres.schema import FENCE

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


def facts(connection: ServerConnection) -> dict[str, str]:
    """How far the fence is behind and who holds it, for people; nothing while all is well."""
    found = holders(connection)
    seconds = found[0].seconds if found else None
    name = found[0].name if found else "a transaction that is not visible here"
    if seconds is None:
        # What was appended since waits too: at least so long.
        ((seconds,),) = connection.rows(_WAITING)
    if seconds is None or seconds <= NORMAL_SECONDS:
        return {}
    return {"readers of the whole log wait": f"since {seconds:,.0f} s for {name}"}
