"""The threads of a store whose driver blocks, and the queues of their jobs.

One thread writes and a few read, so that no event loop waits for a disk or a server. A driver
brings a ``WriteWork`` and ``ReadWork``, which run jobs and settle their acks.

Invariants:

- Jobs of the writer run in the order of ``write``. Every job that the queue took is run before the
  thread ends, be it by ``stop`` or by the end of the interpreter.
- An ack is settled by the work, after the commit; the threads themselves settle no job's ack.
- A queue holds at most its limit in bytes plus one job; beyond that ``put`` waits.
- An object belongs to the process that opened it. In a forked child every use fails, because the
  threads are the parent's and two processes cannot use one connection.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakSet

from eventctx.errors import StoreReadOnly, StoreUnavailable
from eventctx.stores.ack import Ack, Bell

QUEUE_BYTES: Final = 64 * 2**20
BATCH_JOBS: Final = 512
BATCH_BYTES: Final = 4 * 2**20


def closed_error(place: object) -> StoreUnavailable:
    """The error for a use of the store after ``close``."""
    return StoreUnavailable(f"{place}: the store is closed; open it again")


def forked_error(place: object) -> StoreUnavailable:
    """The error for a use of the store in a forked process."""
    return StoreUnavailable(
        f"{place}: expected the process that opened the store, found one that was forked from it; "
        "a connection cannot be used across a fork. Open stores after the fork, or start the "
        "process with 'spawn'"
    )


class Job(NamedTuple):
    """A function to call with the receiving thread's object and ``args``; ``size`` in bytes."""

    ack: Ack[Any]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    size: int


class Mailbox:
    """A bounded queue from any number of threads; first in, first out, over all senders.

    A job is added only while the queued jobs hold less than ``limit`` bytes. After ``close`` no job
    is added, and the receivers still get all those in the queue.

    ``put`` blocks its thread, and with it an event loop, while ``limit`` bytes are queued. This
    cannot deadlock, since the receiving thread needs no event loop to continue; it lasts as long as
    the disk needs for the surplus.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: deque[Job] = deque()
        self._bytes = 0
        self._closed = False
        self._receiver_waits = False
        self._senders_wait = 0
        lock = threading.Lock()
        self._arrival = threading.Condition(lock)
        self._room = threading.Condition(lock)

    def put(self, job: Job) -> bool:
        """Queue a job; false if the mailbox is closed."""
        with self._arrival:
            while self._bytes >= self._limit and not self._closed:
                self._senders_wait += 1
                self._room.wait()
                self._senders_wait -= 1
            if self._closed:
                return False
            self._jobs.append(job)
            self._bytes += job.size
            if self._receiver_waits:
                self._receiver_waits = False
                self._arrival.notify()
            return True

    def take(self, most: int, size: int, timeout: float | None = None) -> list[Job] | None:
        """Take the queued jobs, at least one, and at most ``most`` jobs or about ``size`` bytes.

        Waits for a job: the list is empty after ``timeout`` seconds without one, and the result is
        None once the mailbox is closed and empty.
        """
        with self._arrival:
            if not self._jobs and not self._closed:
                self._receiver_waits = True
                self._arrival.wait(timeout)
                self._receiver_waits = False
            if not self._jobs:
                return None if self._closed else []
            taken: list[Job] = []
            jobs, total = self._jobs, 0
            while jobs and len(taken) < most and (total < size or not taken):
                job = jobs.popleft()
                total += job.size
                taken.append(job)
            self._bytes -= total
            if self._senders_wait and self._bytes < self._limit:
                self._room.notify_all()
            return taken

    def close(self) -> None:
        """Accept no more jobs. Those in the queue can still be taken."""
        with self._arrival:
            self._closed = True
            self._arrival.notify_all()
            self._room.notify_all()


class WriteWork(Protocol):
    """The writer thread's part of a driver."""

    def begin(self) -> None:
        """Called once in the thread, before the first job."""

    def run(self, jobs: list[Job]) -> None:
        """Run at least one job, in order, and settle every ack. Never raises."""

    def stopping(self) -> None:
        """Called in the thread that stops the store, before the last jobs run."""

    def end(self) -> None:
        """Called once in the thread, after the last job."""


class ReadWork(Protocol):
    """One reader thread's part of a driver."""

    @property
    def pause(self) -> float | None:
        """Seconds without a job after which ``idle`` is called; None: never."""

    def answer(self, job: Job) -> None:
        """Run a job and settle its ack. Never raises."""

    def idle(self) -> None:
        """Called after every job and every pause."""

    def stopping(self) -> None:
        """Called in the thread that stops the store, before the last jobs run."""

    def close(self) -> None:
        """Close the connection. Called in the thread, after the last job."""


class StoreThreads:
    """The threads of one open store, or of several stores that share a file.

    ``writing`` is None where nothing can be written, and ``read_only`` makes the error of a write
    then. ``reading`` makes the work of a reader thread; another one starts only while all are busy,
    so that one long read stops no other. ``bell`` wakes the subscriptions when the threads stop.
    """

    def __init__(
        self,
        place: str,
        name: str,
        writing: WriteWork | None,
        reading: Callable[[], ReadWork],
        bell: Bell,
        read_only: Callable[[], StoreReadOnly],
        most_readers: int = 1,
    ) -> None:
        self.place = place
        self.bell = bell
        self.forked = False
        self.read_only = read_only
        self._name = name
        self._writing = writing
        self._reading = reading
        self._most_readers = most_readers
        self._queue = Mailbox(QUEUE_BYTES)
        self._reads = Mailbox(2**62)
        self._lock = threading.Lock()
        self._readers: list[tuple[threading.Thread, ReadWork]] = []
        self._unanswered = 0
        """Reads that are queued or under way."""
        self._stopped = False
        self._writer: threading.Thread | None = None
        if writing is not None:
            self._writer = self._thread(self._write, "writer", writing)
        self._start_reader()
        _running.add(self)

    def write(self, function: Callable[..., Any], args: tuple[Any, ...], size: int) -> Ack[Any]:
        """Queue a write, whose ``size`` in bytes counts towards the queue's limit.

        Blocks while the queue is full; the ack fails with StoreUnavailable after ``stop``.
        """
        if self.forked:
            return Ack.failed(forked_error(self.place))
        if self._writing is None:
            return Ack.failed(self.read_only())
        ack: Ack[Any] = Ack()
        if not self._queue.put(Job(ack, function, args, size)):
            return Ack.failed(closed_error(self.place))
        return ack

    def read(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Ack[Any]:
        """Queue a read; the ack fails with StoreUnavailable after ``stop``."""
        if self.forked:
            return Ack.failed(forked_error(self.place))
        if self._most_readers > 1:
            with self._lock:
                self._unanswered += 1
                if len(self._readers) < min(self._unanswered, self._most_readers):
                    self._start_reader()
        ack: Ack[Any] = Ack()
        if not self._reads.put(Job(ack, function, args, 0)):
            return Ack.failed(closed_error(self.place))
        return ack

    def stop(self) -> None:
        """Run the queued jobs, and end the threads. Blocks; does nothing in a forked process."""
        if self.forked:
            return
        self.finish_queued_writes()
        self.bell.ring()
        with self._lock:
            self._stopped = True
        for _, work in self._readers:
            work.stopping()
        self._reads.close()
        for thread, _ in self._readers:
            thread.join()

    def finish_queued_writes(self) -> None:
        """Run the queued writes, and end the writer thread. Blocks."""
        if self._writing is not None and self._writer is not None:
            self._writing.stopping()
            self._queue.close()
            self._writer.join()

    def _start_reader(self) -> None:
        if self._stopped:
            return
        work = self._reading()
        self._readers.append((self._thread(self._answer, "reader", work), work))

    def _thread(self, target: Callable[[Any], None], kind: str, work: object) -> threading.Thread:
        name = f"eventctx-{kind} {self._name}"
        thread = threading.Thread(target=target, args=(work,), name=name, daemon=True)
        thread.start()
        return thread

    def _write(self, work: WriteWork) -> None:
        work.begin()
        while (jobs := self._queue.take(BATCH_JOBS, BATCH_BYTES)) is not None:
            work.run(jobs)
        work.end()

    def _answer(self, work: ReadWork) -> None:
        while (jobs := self._reads.take(1, 1, work.pause)) is not None:
            while jobs:  # a job that stayed here would hold its answer until the next one comes
                work.answer(jobs.pop(0))
                if self._most_readers > 1:
                    with self._lock:
                        self._unanswered -= 1
            work.idle()
        work.close()


_running: WeakSet[StoreThreads] = WeakSet()


def _after_fork() -> None:
    # The threads are the parent's, and one of them may have held any lock.
    for threads in list(_running):
        threads.forked = True
    _running.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _finish_queued_writes() -> None:
    """Write appends that nobody awaited, as the interpreter ends without ``close``."""
    for threads in list(_running):
        threads.finish_queued_writes()
