"""What a reader thread does with a job: it asks the server, again after a lost connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from eventctx.stores.ack import settle
from eventctx.stores.postgres.connections import ServerConnection
from eventctx.stores.postgres.errors import (
    ConnectionLost,
    Refused,
    begins_again,
    loses_connection,
    translated,
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
                settle([(job.ack, None, translated(error, self._place))])
                return
            settle([(job.ack, found, None)])
            return

    def idle(self) -> None:
        """Change nothing: ``NewsListener`` hears of commits."""

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._queries is not None:
            self._queries.connection.close()
