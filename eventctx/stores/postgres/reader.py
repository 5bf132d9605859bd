"""Reads of the server in threads: the work of a reader thread, and news of other processes.

News come by notification, and by a look now and then. A notification costs every committing writer
a lock of the whole server, so writers send one only while a listener holds a lock that they look
at. A listener that began a moment too late for a commit finds it when it looks.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from eventctx.stores.ack import settle
from eventctx.stores.postgres.connections import ServerConnection
from eventctx.stores.postgres.errors import (
    ConnectionLost,
    Refused,
    begins_again,
    loses_connection,
    translate,
)
from eventctx.stores.postgres.queries import ServerQueries
from eventctx.stores.threads import Job, ReadWork

_PAUSE: Final = 0.2


class ServerReader(ReadWork):
    """Runs functions of ``ServerQueries`` on one connection, which the first job opens."""

    pause = None

    def __init__(
        self, connect: Callable[[], ServerConnection], place: str, patience: float
    ) -> None:
        self._connect = connect
        self._place = place
        self._patience = patience
        self._queries: ServerQueries | None = None
        self._stopped = False

    def stopping(self) -> None:
        """Look for no lost server any more."""
        self._stopped = True

    def answer(self, job: Job) -> None:
        """Run a query, on a new connection if need be, and settle its ack."""
        end = time.monotonic() + self._patience
        while True:
            try:
                if self._queries is None:
                    self._queries = ServerQueries(self._connect())
                found = job.function(self._queries, *job.args)
            except Exception as error:
                gone = isinstance(error, ConnectionLost)
                if isinstance(error, Refused):
                    gone = loses_connection(error)
                if gone:
                    with suppress(Exception):
                        self.close()
                    self._queries = None
                again = gone or (isinstance(error, Refused) and begins_again(error))
                if again and time.monotonic() < end and not self._stopped:
                    time.sleep(_PAUSE)
                    continue
                settle([(job.ack, None, translate(error, self._place))])
                return
            settle([(job.ack, found, None)])
            return

    def idle(self) -> None:
        """Change nothing: ``NewsListener`` hears of commits."""

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._queries is not None:
            self._queries.connection.close()


LOOK_SECONDS: Final = 1.0
"""Seconds between two looks, where notifications come."""

LOOK_OFTEN_SECONDS: Final = 0.1
"""The same on a standby, which sends none, and while a transaction is under way."""

_ACTIVITY: Final = (
    "SELECT coalesce(max(r.pos), -1), pg_snapshot_xmin(pg_current_snapshot())::text "
    "FROM eventctx.records r"
)
_LISTEN: Final = (
    "SELECT pg_advisory_lock_shared('eventctx.meta'::regclass::oid::integer, 1), "
    "pg_is_in_recovery(), 'eventctx.meta'::regclass::oid::text"
)


class NewsListener:
    """A thread that calls ``changed`` after commits of any process, while there are watchers."""

    def __init__(
        self, connect: Callable[[], ServerConnection], changed: Callable[[], None]
    ) -> None:
        self._connect = connect
        self._changed = changed
        self._lock = threading.Lock()
        self._watchers = 0
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)

    def watch(self, change: int) -> None:
        """Add (1) or remove (-1) a watcher. The first one starts the thread, the last ends it."""
        with self._lock:
            self._watchers += change
            if self._watchers and self._thread is None and not self._stopped:
                self._thread = threading.Thread(
                    target=self._run, name="eventctx-listener", daemon=True
                )
                self._thread.start()
            elif not self._watchers and not self._stopped:
                self._wake_up()

    def stop(self) -> None:
        """End the thread. Blocks."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            thread = self._thread
            self._wake_up()
        if thread is not None:
            thread.join()
        self._woken.close()
        self._wake.close()

    def _wake_up(self) -> None:
        self._wake.send(b"\0")

    def _wanted(self) -> bool:
        with self._lock:
            if self._watchers and not self._stopped:
                return True
            self._thread = None
            return False

    def _run(self) -> None:
        while self._wanted():
            try:
                connection = self._connect()
            except Exception:  # the next read reports why
                self._pause(LOOK_SECONDS)
                continue
            try:
                self._listen(connection)
            except (ConnectionLost, Refused):
                self._pause(LOOK_OFTEN_SECONDS)
            finally:
                connection.close()

    def _pause(self, seconds: float) -> None:
        select.select([self._woken], [], [], seconds)
        self._drain()

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(4096)

    def _listen(self, connection: ServerConnection) -> None:
        """Listen on one connection while there are watchers. Raises ConnectionLost, Refused."""
        seconds = LOOK_SECONDS
        standby = bool(connection.rows("SELECT pg_is_in_recovery()")[0][0])
        if standby:
            seconds = LOOK_OFTEN_SECONDS
        else:
            ((_, _, number),) = connection.rows(_LISTEN)
            connection.script(f'LISTEN "eventctx:{number}"')
        seen: tuple[Any, ...] = ()
        self._changed()
        while self._wanted():
            heard = connection.wait_for_news(seconds, self._woken.fileno())
            self._drain()
            if heard:
                self._changed()
                continue
            (found,) = connection.rows(_ACTIVITY)
            if found != seen:
                seen = found
                self._changed()
