"""The threads of a store that read: a few connections, so that one long read stops no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from eventctx.stores.ack import Ack, settle
from eventctx.stores.mailbox import Job, Mailbox
from eventctx.stores.postgres.connections import ServerConnection
from eventctx.stores.postgres.errors import (
    ConnectionLost,
    Refused,
    begins_again,
    closed,
    loses_connection,
    translated,
)
from eventctx.stores.postgres.queries import ServerQueries

MOST_CONNECTIONS: Final = 3
"""A process reads on as many at once; another one is opened only while all are busy."""

_PAUSE: Final = 0.2


class Readers:
    """Runs functions of ``ServerQueries``, each on the first connection that is free."""

    def __init__(
        self, connect: Callable[[], ServerConnection], place: str, patience: float
    ) -> None:
        self._connect = connect
        self._place = place
        self._patience = patience
        self._mailbox = Mailbox(2**62)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._waiting = 0
        """Jobs that are queued or under way."""
        self._stopped = False

    def call(self, function: Callable[..., Any], *args: Any) -> Ack[Any]:
        """Run ``function(queries, *args)``; the ack gives its result.

        The ack fails with StoreUnavailable after ``stop``.
        """
        ack: Ack[Any] = Ack()
        with self._lock:
            self._waiting += 1
            if not self._stopped and len(self._threads) < min(self._waiting, MOST_CONNECTIONS):
                thread = threading.Thread(
                    target=self._run, name=f"eventctx-reader {self._place}", daemon=True
                )
                self._threads.append(thread)
                thread.start()
        if not self._mailbox.put(Job(ack, function, args, 0)):
            return Ack.failed(closed(self._place))
        return ack

    def stop(self) -> None:
        """Answer what is queued, then end the threads and close their connections. Blocks."""
        with self._lock:
            self._stopped = True
        self._mailbox.close()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        queries: ServerQueries | None = None
        while (jobs := self._mailbox.take(1, 1)) is not None:
            while jobs:  # a job that stayed here would hold its answer until the next one comes
                queries = self._answer(queries, jobs.pop(0))
                with self._lock:
                    self._waiting -= 1
        if queries is not None:
            queries.connection.close()

    def _answer(self, queries: ServerQueries | None, job: Job) -> ServerQueries | None:
        """Answer a job, on a new connection if need be; returns the connection to go on with."""
        end = time.monotonic() + self._patience
        while True:
            try:
                if queries is None:
                    queries = ServerQueries(self._connect())
                found = job.function(queries, *job.args)
            except Exception as error:
                gone = isinstance(error, ConnectionLost)
                if isinstance(error, Refused):
                    gone = loses_connection(error)
                if gone and queries is not None:
                    with suppress(Exception):
                        queries.connection.close()
                    queries = None
                again = gone or (isinstance(error, Refused) and begins_again(error))
                if again and time.monotonic() < end and not self._stopped:
                    time.sleep(_PAUSE)
                    continue
                settle([(job.ack, None, translated(error, self._place))])
                return queries
            settle([(job.ack, found, None)])
            return queries
