"""A look at a stream's last position in the caller's own thread.

The reader's thread answers in about 100 µs, most of which is waiting for a thread. This question is
asked before every answer from memory, takes one step in an index, and never waits for a writer: so
it is answered in place, on a connection of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import apsw

from eventctx.errors import EventctxError

_LAST = "SELECT max(position) FROM records WHERE stream=(SELECT id FROM streams WHERE name=?)"


class Peek:
    """The last positions of streams. ``connect`` opens the connection, for the first question.

    Safe to use from several threads. It waits neither for a lock of the database nor for another
    thread, and has no answer instead (None).
    """

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        # Held for some 20 µs; an SQLite connection refuses a second thread in the meantime.
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._closed = False

    def head(self, stream: str) -> int | None:
        """The stream's last position, -1 without records; None where it cannot be told now."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._closed:
                return None
            if self._connection is None:
                self._connection = self._connect()
            ((last,),) = self._connection.execute(_LAST, (stream,)).fetchall()
        except (apsw.Error, EventctxError):
            return None  # locked, damaged or gone: the reader reports it to the caller
        finally:
            self._lock.release()
        return -1 if last is None else int(last)

    def close(self) -> None:
        """Close the connection; there is no answer from here on."""
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(True)
