"""The writes of one file in this process: many appends, one transaction, one fsync.

There is no timer. While a commit waits for the disk, appends queue up; the next transaction takes
them all. A lone append is written at once, a hundred sessions share each commit.

Invariants: jobs run in the order of their calls, and an ack is settled only after its transaction
was committed. A job that raises an eventctx error has changed nothing, so it fails alone and its
transaction goes on. Any other error rolls the transaction back: if the lock, the disk or the rights
are the cause, all its jobs fail; otherwise each job is run again in a transaction of its own, so
that only the bad one fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw

from eventctx.errors import EventctxError
from eventctx.stores.ack import Outcome, settle
from eventctx.stores.sqlite_errors import is_passing, translate
from eventctx.stores.sqlite_log import Log
from eventctx.stores.sqlite_queries import UNSCRUBBED, Queries
from eventctx.stores.sqlite_schema import Durability, LockWait, tell_rights
from eventctx.stores.threads import Job, WriteWork

_log = logging.getLogger("eventctx.stores")

CHECKPOINT_PAGES = 1000

_YIELD_SECONDS = 0.0005
"""Pause after a commit while another process wants to write, so that it finds the lock free.

Measured with two to four processes that write without pause: no append waits over 0.1 s, where
SQLite's own waiting let one process starve for seconds.
"""


class Writer(WriteWork):
    """Runs functions of a ``Log`` in transactions.

    ``check_place`` is called in the writer thread before every transaction, which fails with the
    error that it raises, and ``committed`` after every transaction.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        path: Path,
        lock: LockWait,
        committed: Callable[[], None],
        check_place: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._path = path
        self._lock = lock
        self._committed = committed
        self._check_place = check_place
        self._stronger: Durability | None = None
        self._told = False
        self._unscrubbed = False
        self._log = Log(connection)
        self._log_pages = 0
        connection.set_wal_hook(self._note_pages)

    def strengthen(self, durability: Durability, lock_timeout: float) -> None:
        """Use the stronger durability and the longer wait from the next transaction on."""
        self._lock.timeout = max(self._lock.timeout, lock_timeout)
        if durability == "full":
            self._stronger = durability

    def begin(self) -> None:
        """Scrub the log if a process that erased something ended before it had."""
        with suppress(apsw.Error):
            self._unscrubbed = not Queries(self._connection).scrubbed()
            if self._unscrubbed:
                self._scrub()

    def run(self, jobs: list[Job]) -> None:
        """Run ``jobs`` in one transaction, and settle their acks."""
        contended = self._write(jobs)
        if self._log_pages >= CHECKPOINT_PAGES:
            self._checkpoint("PASSIVE")
        if contended:
            time.sleep(_YIELD_SECONDS)
        if self._unscrubbed:
            self._scrub(wait=False)

    def stopping(self) -> None:
        """Change nothing: every wait for a lock ends by itself."""

    def end(self) -> None:
        """Move the log into the file. The connection stays open, for the file to close last."""
        if self._unscrubbed:
            self._scrub()
        self._checkpoint("PASSIVE")

    def _write(self, jobs: list[Job]) -> bool:
        """Run ``jobs`` in one transaction; true if other processes write or wait to write."""
        outcomes: list[Outcome] = []
        log = self._log
        self._lock.waited = False
        try:
            self._check_place()
            self._apply_durability()
            foreign = log.begin()
            if not self._told:
                tell_rights(self._connection, self._path)
                self._told = True
            for job in jobs:
                try:
                    outcomes.append((job.ack, job.function(log, *job.args), None))
                except EventctxError as error:
                    outcomes.append((job.ack, None, error))
            log.commit()
        except Exception as error:
            self._undo(jobs, error)
            return self._lock.waited
        if log.erased:
            log.erased = False
            self._scrub()
        settle(outcomes)
        self._committed()
        return foreign or self._lock.waited

    def _apply_durability(self) -> None:
        # SQLite takes this setting only between two transactions.
        if self._stronger is not None:
            self._connection.execute(f"PRAGMA synchronous={self._stronger}").fetchall()
            self._stronger = None

    def _undo(self, jobs: list[Job], error: Exception) -> None:
        system_errno = self._connection.system_errno
        with suppress(apsw.Error):
            self._log.rollback()
        if len(jobs) > 1 and not is_passing(error):
            # One of the jobs cannot be stored; in a transaction of its own it fails alone.
            for job in jobs:
                self._write([job])
            return
        settle([(job.ack, None, translate(error, self._path, system_errno)) for job in jobs])

    def _scrub(self, *, wait: bool = True) -> None:
        """Empty the log: it still holds the pages as they were before an erasure.

        That needs a moment without readers in other processes; without one, it is tried again
        after each transaction, and at the end.
        """
        timeout, self._lock.timeout = self._lock.timeout, self._lock.timeout if wait else 0.0
        try:
            ((busy, _, _),) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if not busy:
                self._connection.execute(
                    "DELETE FROM checkpoints WHERE name=?", (UNSCRUBBED,)
                ).fetchall()
            self._unscrubbed = bool(busy)
        except apsw.Error:
            self._unscrubbed = True
        finally:
            self._lock.timeout = timeout
        if self._unscrubbed and wait:
            _log.warning(
                "%s: what was erased stays legible in %s-wal until the other process that reads "
                "the store ends; it is removed then, or when the store is opened again",
                self._path, self._path.name,
            )  # fmt: skip

    def _checkpoint(self, mode: str) -> None:
        # If a checkpoint fails or cannot finish, a later one does its work.
        with suppress(apsw.Error):
            self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        self._log_pages = 0

    def _note_pages(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK
