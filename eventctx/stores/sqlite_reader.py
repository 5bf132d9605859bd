"""The one thread of this process that reads, so that no query stalls an event loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from eventctx.stores.ack import Ack, settle
from eventctx.stores.mailbox import Job, Mailbox
from eventctx.stores.sqlite_errors import closed, translated
from eventctx.stores.sqlite_queries import Queries

POLL_SECONDS = 0.015
"""Seconds between two looks for commits of other processes, for subscriptions."""


class ReadingThread:
    """Runs functions of ``Queries`` in order of their calls.

    While there are watchers, it calls ``changed`` in its thread after commits of any connection.
    """

    def __init__(
        self, connection: apsw.Connection, path: Path, changed: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._path = path
        self._changed = changed
        self._queries = Queries(connection)
        self._mailbox = Mailbox(2**62)
        self._watchers = 0
        self._watchers_lock = threading.Lock()
        self._thread = threading.Thread(
            target=self._run, name=f"eventctx-reader {path.name}", daemon=True
        )
        self._thread.start()

    def call(self, function: Callable[..., Any], *args: Any) -> Ack[Any]:
        """Run ``function(queries, *args)``; the ack gives its result.

        The ack fails with StoreUnavailable after ``stop``.
        """
        ack: Ack[Any] = Ack()
        if not self._mailbox.put(Job(ack, function, args, 0)):
            return Ack.failed(closed(self._path))
        return ack

    def watch(self, change: int) -> None:
        """Add (1) or remove (-1) a watcher. This takes effect with the next ``call``."""
        with self._watchers_lock:
            self._watchers += change

    def stop(self) -> None:
        """Answer what is queued, then end the thread and close the connection."""
        self._mailbox.close()
        self._thread.join()

    def _run(self) -> None:
        seen, next_poll = -1, 0.0
        while True:
            jobs = self._mailbox.take(1, 1, POLL_SECONDS if self._watchers else None)
            if jobs is None:
                break
            while jobs:  # a job that stayed here would hold its answer until the next one comes
                self._answer(jobs.pop(0))
            if self._watchers and (now := time.monotonic()) >= next_poll:
                next_poll = now + POLL_SECONDS
                version = self._version(seen)
                if version != seen:
                    seen = version
                    self._changed()
        self._connection.close(True)

    def _answer(self, job: Job) -> None:
        try:
            outcome = (job.ack, job.function(self._queries, *job.args), None)
        except Exception as error:
            failure = translated(error, self._path, self._connection.system_errno)
            settle([(job.ack, None, failure)])
        else:
            settle([outcome])

    def _version(self, seen: int) -> int:
        try:
            return self._queries.data_version()
        except apsw.Error:
            return seen  # locked or damaged: the next read reports it to its caller
