"""The writes of a store: many appends, one call of the server, one commit.

There is no timer. While the server commits, appends queue up; the next call takes them all.

Invariants: jobs run in the order of their calls, and an ack is settled only after the server said
that the transaction was committed, and ``durability`` confirmed that it survives. A server that is
lost is looked for again for ``patience`` seconds; then pending writes are repeated, and the event
ids show which were stored. A job that cannot be stored fails alone.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from eventctx.errors import EventctxError, StoreUnavailable, StoreUnsafe
from eventctx.stores.ack import Outcome, settle
from eventctx.stores.postgres.append import AppendRounds, KnownHeads, Types, WaitingAppend
from eventctx.stores.postgres.connections import ServerConnection
from eventctx.stores.postgres.durability import Durability
from eventctx.stores.postgres.errors import (
    ConnectionLost,
    Refused,
    begins_again,
    loses_connection,
    translate,
    unknown_fate,
)
from eventctx.stores.postgres.log import EarlierTries, ServerLog
from eventctx.stores.postgres.scrubbing import scrub, unscrubbed
from eventctx.stores.threads import Job, WriteWork

_log = logging.getLogger("eventctx.stores")

_PAUSES: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between two attempts to find a server again."""

_MOST_COLLISIONS: Final = 3
"""Times that a batch is sent again after a collision, before its appends are sent one by one."""

Connect = Callable[[], ServerConnection]


def append(*_: Any) -> None:
    """Marks a job as an append, which the writer puts together with its neighbours."""
    raise NotImplementedError


class GroupWriter(WriteWork):
    """Runs appends, and functions of a ``ServerLog``.

    ``connect`` makes a connection and checks its server. ``committed`` is called after
    every commit.
    """

    def __init__(
        self,
        connection: ServerConnection,
        connect: Connect,
        patience: float,
        durability: Durability,
        committed: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._connection = connection
        self._place = connection.place
        self._patience = patience
        self._durability = durability
        self._committed = committed
        self._heads = KnownHeads()
        self._types = Types()
        self._lost = False
        self._stopped_at: float | None = None
        self._unscrubbed = False
        self._use(connection)

    def _use(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._heads.forget()
        self._appending = AppendRounds(connection, self._heads, self._types)
        self._own = ServerLog(connection, self._heads, self._types)
        self._lost = False

    def begin(self) -> None:
        """Scrub the tables if a process that erased something ended before it had."""
        with suppress(ConnectionLost, Refused):
            self._unscrubbed = bool(unscrubbed(self._connection))
            if self._unscrubbed:
                self._scrub()

    def run(self, jobs: list[Job]) -> None:
        """Run ``jobs``, neighbouring appends in one call of the server, and settle their acks."""
        while jobs:
            count = next((n for n, job in enumerate(jobs) if job.function is not append), len(jobs))
            if count:
                self._append([WaitingAppend(job.ack, job.size, *job.args) for job in jobs[:count]])
            else:
                self._do(jobs[0])
                count = 1
            del jobs[:count]

    def stopping(self) -> None:
        """Give all that is queued ``patience`` seconds together to find a lost server."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()

    def end(self) -> None:
        """Close the connection."""
        if self._unscrubbed:
            with suppress(ConnectionLost, Refused):
                self._scrub()
        self._connection.close()

    def _append(self, waiting: list[WaitingAppend]) -> None:
        """Append in rounds until all is decided. Settles their acks."""
        self._appending.forget_fresh()
        patience = _Patience(self._patience, lambda: self._stopped_at)
        collisions = 0
        while waiting:
            try:
                self._find_server()
                outcomes, left = self._appending.round(waiting)
                self._settle(outcomes)
                waiting = left
            except Exception as error:
                again = self._again(error, patience)
                collisions += isinstance(error, Refused)
                if again and collisions < _MOST_COLLISIONS:
                    continue
                if len(waiting) > 1 and not isinstance(error, (ConnectionLost, StoreUnavailable)):
                    # One of them cannot be stored, and alone it fails alone. Or other processes
                    # write several of these streams, and a call for one stream waits its turn.
                    for one in waiting:
                        self._append([one])
                    return
                if again:
                    continue
                settle([(one.ack, None, self._failure(error, one.stream)) for one in waiting])
                return

    def _do(self, job: Job) -> None:
        """Run one function of the log, in a transaction of its own. Settles its ack."""
        patience = _Patience(self._patience, lambda: self._stopped_at)
        tries = EarlierTries()
        while True:
            try:
                self._find_server()
                self._own.tries = tries
                done = job.function(self._own, *job.args)
                break
            except Exception as error:
                tries.lost += isinstance(error, ConnectionLost)
                if self._again(error, patience):
                    continue
                settle([(job.ack, None, self._failure(error))])
                return
        if self._own.erased:
            self._own.erased = False
            self._unscrubbed = True
            with suppress(ConnectionLost, Refused):
                self._scrub()
        self._settle([(job.ack, done, None)])

    def _settle(self, outcomes: list[Outcome]) -> None:
        if not outcomes:
            return
        try:
            with self._connection.driver() as driver:
                self._durability.confirm(driver)
        except StoreUnsafe as error:
            outcomes = [(ack, None, before or error) for ack, _, before in outcomes]
        settle(outcomes)
        self._committed()

    def _again(self, error: Exception, patience: _Patience) -> bool:
        """Whether to try the same again: after a pause, and perhaps on a new connection."""
        if isinstance(error, ConnectionLost) or (
            isinstance(error, Refused) and loses_connection(error)
        ):
            if not self._lost:
                _log.warning("%s: lost the server (%s); looking for it again", self._place, error)
            self._lost = True
            self._connection.close()
            return patience.pause()
        if isinstance(error, StoreUnsafe) and self._lost:
            return patience.pause()  # a cluster that is changing its primary
        if isinstance(error, Refused) and begins_again(error):
            self._heads.forget()
            return patience.pause(short=True)
        return False

    def _find_server(self) -> None:
        """Connect again if need be. Raises ConnectionLost, Refused, EventctxError."""
        if not self._lost:
            with self._connection.driver() as driver:
                self._durability.check(driver)
        else:
            self._use(self._connect())
            _log.warning("%s: found the server again", self._place)

    def _failure(self, error: Exception, stream: str = "") -> EventctxError:
        if isinstance(error, ConnectionLost):
            return unknown_fate(self._place, error, self._patience)
        return translate(error, self._place, stream)

    def _scrub(self) -> None:
        self._unscrubbed = not scrub(self._connection)


class _Patience:
    """Pauses between attempts, which get longer, until the time is up."""

    def __init__(self, seconds: float, stopped_at: Callable[[], float | None]) -> None:
        self._seconds = seconds
        self._stopped_at = stopped_at
        self._end = 0.0
        self._tries = 0

    def pause(self, *, short: bool = False) -> bool:
        """Wait a moment; false if the time is up, which began with the first call.

        Once the store is being closed, all that is queued has that time together.
        """
        now = time.monotonic()
        self._end = self._end or now + self._seconds
        stopped = self._stopped_at()
        end = self._end if stopped is None else min(self._end, stopped + self._seconds)
        if now >= end:
            return False
        pause = 0.001 * 2 ** min(self._tries, 6) if short else _PAUSES[min(self._tries, 4)]
        self._tries += 1
        time.sleep(min(pause * random.uniform(0.5, 1.5), end - now))  # noqa: S311
        return True
