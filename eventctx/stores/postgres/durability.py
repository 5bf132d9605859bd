"""Checks, by the server's settings and standbys, that an acknowledged append survives.

A server may be told to acknowledge a commit before it is on disk, and a cluster to go on without
its standbys. Neither shows in a commit's result. So a store looks at the settings when it connects,
and one whose appends must survive the loss of a machine looks at the standbys before every
acknowledgement: enough of them must have the primary's log on disk up to the commit. The settings
alone prove nothing then:

- Patroni's ``synchronous_mode`` without ``synchronous_mode_strict`` empties
  ``synchronous_standby_names`` when the last standby is lost. Commits that wait are released, as
  if they were replicated.
- A commit whose wait is cancelled succeeds with a warning: it is on this machine alone.
- After ``synchronous_standby_names`` was set, commits go on without waiting until the server's
  checkpointer has read it, which can take as long as a checkpoint writes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from eventctx.errors import StoreUnsafe

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

CommitLevel = Literal["local", "replicated"]

Survives = Literal["power cut", "loss of a machine"]

SURVIVES: Final[Mapping[CommitLevel, Survives]] = {
    "local": "power cut",
    "replicated": "loss of a machine",
}
"""The worst that an acknowledged append outlives."""

_NUMBERED: Final = re.compile(r"\s*(?:(?:ANY|FIRST)\s+)?(\d+)\s*\(.*\)\s*", re.IGNORECASE)

# A commit waits for a standby, or (local) for this server's disk; off waits for nothing. What a
# database or a role sets is overridden for this session, which nobody else can change any more.
_COMMITS: Final = {
    "local": "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'",
    "replicated": "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')",
}

_SETTINGS: Final = (
    "SELECT current_setting('fsync'), current_setting('full_page_writes'),"
    " current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),"
    " current_setting('data_checksums'), pg_has_role('pg_read_all_stats', 'USAGE')"
)

_UNLOGGED: Final = (
    "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
    " AND relname IN ('meta', 'streams', 'types', 'records', 'bodies')"
    " AND relkind = 'r' AND relpersistence <> 'p' ORDER BY relname"
)

# The function of pg_stat_replication; the view joins it with users and activity.
_REPLICATED: Final = (
    "SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),"
    " current_setting('fsync'), current_setting('full_page_writes'), log_end,"
    " (SELECT count(*) FROM pg_stat_get_wal_senders() AS standby"
    "  WHERE sync_state IN ('sync', 'quorum') AND flush_lsn >= log_end)"
    " FROM (SELECT coalesce(%s::pg_lsn, pg_current_wal_flush_lsn()) AS log_end) AS here"
)

_STANDBYS: Final = (
    "SELECT application_name, coalesce(state, 'not visible'), coalesce(sync_state, 'not visible'),"
    " pg_wal_lsn_diff(pg_current_wal_flush_lsn(), flush_lsn)::bigint"
    " FROM pg_stat_replication ORDER BY application_name, pid"
)

_FIRST_PAUSE: Final = 0.0002
_LONGEST_PAUSE: Final = 0.05


class _Settings(NamedTuple):
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    synchronous_standby_names: str
    data_checksums: str
    sees_standbys: bool


def standbys_needed(names: str) -> int:
    """How many standbys ``synchronous_standby_names`` has a commit wait for; 0 for none.

    https://www.postgresql.org/docs/current/runtime-config-replication.html
    """
    if not names.strip():
        return 0
    numbered = _NUMBERED.fullmatch(names)
    return int(numbered[1]) if numbered else 1


class Durability:
    """The checks of one store, for the connection that its appends go through.

    ``local``: an acknowledged append is on the server's disk. ``replicated``: it is on the disks of
    as many standbys, too, as ``synchronous_standby_names`` asks for, at least one.
    """

    def __init__(
        self, wanted: CommitLevel, *, schema: str = "eventctx", patience: float = 60.0
    ) -> None:
        self.wanted: Final = wanted
        self._schema = schema
        self._patience = patience
        self._doubted = False

    def prepare(self, connection: Connection[Any]) -> None:
        """Make a new connection's commits safe, and check the server's settings.

        Raises:
            StoreUnsafe: the server could lose an acknowledged append.
        """
        connection.execute(_COMMITS[self.wanted])
        found = _settings(connection)
        _check_disk(found.fsync, found.full_page_writes)
        _check_commits(found.synchronous_commit)
        unlogged = [name for (name,) in connection.execute(_UNLOGGED, (self._schema,)).fetchall()]
        if unlogged:
            raise StoreUnsafe(
                f"tables of schema {self._schema!r} are unlogged and empty after a crash: "
                f"{', '.join(unlogged)}; run ALTER TABLE … SET LOGGED"
            )
        if self.wanted == "replicated":
            _check_standbys(found.synchronous_standby_names)
            if not found.sees_standbys:
                raise StoreUnsafe(
                    "durability=replicated checks before every acknowledgement that the standbys "
                    "have the append, and this role may not see them; run GRANT pg_read_all_stats "
                    "TO the role that writes"
                )
        self._doubted = False

    def check(self, connection: Connection[Any]) -> None:
        """Refuse to write after a look found the server unsafe, until it is safe again.

        To be called before a transaction; it asks the server only after such a find.

        Raises:
            StoreUnsafe: it still is; nothing was written.
        """
        if self._doubted:
            self.prepare(connection)

    def look(self, connection: Connection[Any]) -> Cursor[Any] | None:
        """Send the question of `confirm`, without waiting for the answer in a pipeline.

        After a COMMIT in the same pipeline it saves `confirm` a round trip. The COMMIT must be a
        statement: the implicit transaction of a pipeline commits at its end, after the look.
        """
        return None if self.wanted == "local" else connection.execute(_REPLICATED, (None,))

    def confirm(self, connection: Connection[Any], looked: Cursor[Any] | None = None) -> None:
        """Return when the commits of this connection are as durable as requested.

        To be called after a commit, outside of a transaction, before it is acknowledged.
        ``looked`` is the result of a `look` that followed the commit; without one it looks itself.

        Raises:
            StoreUnsafe: the commit is on this server, but not where it has to be, and was not
                acknowledged. Appending the same records again settles it.
        """
        looked = looked or self.look(connection)
        if looked is None:
            return
        try:
            self._wait_for_standbys(connection, looked)
        except BaseException:
            self._doubted = True
            raise

    def _wait_for_standbys(self, connection: Connection[Any], looked: Cursor[Any]) -> None:
        until = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            row = looked.fetchone()
            assert row is not None  # noqa: S101 - tells the type checker
            commits, names, fsync, full_pages, log_end, having = row
            _check_disk(fsync, full_pages)
            _check_commits(commits)
            _check_standbys(names)
            needed = standbys_needed(names)
            if having >= needed:
                return
            if time.monotonic() > until:
                raise StoreUnsafe(
                    f"expected {needed} standby{'s' * (needed > 1)} to have the append on disk, "
                    f"found {having} after {self._patience:g} s; it is on the primary, and was not "
                    "acknowledged; look at pg_stat_replication, and append again"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            # Others write meanwhile, so the log's end is the one that the first look found.
            looked = connection.execute(_REPLICATED, (log_end,))

    def facts(self, connection: Connection[Any]) -> dict[str, str]:
        """The settings and standbys on which the durability rests, for people."""
        found = _settings(connection)
        facts = {
            "synchronous_commit": found.synchronous_commit,
            "synchronous_standby_names": found.synchronous_standby_names or "(none)",
            "fsync": found.fsync,
            "full_page_writes": found.full_page_writes,
            "data_checksums": found.data_checksums,
        }
        for name, state, kind, behind in connection.execute(_STANDBYS).fetchall():
            lag = "" if behind is None else f", {max(behind, 0):,} bytes behind"
            facts[f"standby {name}"] = f"{state}, {kind}{lag}"
        return facts


def _settings(connection: Connection[Any]) -> _Settings:
    row = connection.execute(_SETTINGS).fetchone()
    assert row is not None  # noqa: S101 - tells the type checker
    return _Settings(*row)


def _check_disk(fsync: str, full_page_writes: str) -> None:
    if fsync != "on":
        raise StoreUnsafe(
            "the server acknowledges what is not on its disk: expected fsync=on, found "
            f"fsync={fsync}; run ALTER SYSTEM SET fsync = on, reload, and let a checkpoint end"
        )
    if full_page_writes != "on":
        raise StoreUnsafe(
            "a power cut can tear a page of the server: expected full_page_writes=on, found "
            f"full_page_writes={full_page_writes}; run ALTER SYSTEM SET full_page_writes = on, "
            "and reload"
        )


def _check_commits(synchronous_commit: str) -> None:
    if synchronous_commit == "off":
        raise StoreUnsafe(
            "commits return before they are on disk: expected synchronous_commit=on, found off, "
            "although it was set for this session; is there a pooler between that gives every "
            "transaction another connection? Connect to the server itself"
        )


def _check_standbys(names: str) -> None:
    if standbys_needed(names) == 0:
        raise StoreUnsafe(
            "durability=replicated needs a synchronous standby, and synchronous_standby_names is "
            "empty: the loss of this server would lose what it acknowledged. Set it to 'ANY 1 "
            "(NAME, NAME)'. Patroni empties it when the last standby is lost, unless "
            "synchronous_mode_strict is true: set that, and bring the standby back"
        )
