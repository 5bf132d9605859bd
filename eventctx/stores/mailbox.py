"""A bounded queue from any number of threads to one thread, which takes jobs in batches.

Invariant: a job is added only while the queued jobs hold less than ``limit`` bytes, so the queue
holds at most ``limit`` bytes plus one job. Jobs leave in the order in which they came. After
``close`` no job is added, and the receiver still gets all those in the queue.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from eventctx.stores.ack import Ack


class Job(NamedTuple):
    """A function to call with the receiving thread's object and ``args``; ``size`` in bytes."""

    ack: Ack[Any]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    size: int


class Mailbox:
    """First in, first out, over all senders.

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
