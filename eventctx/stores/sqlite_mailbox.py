"""A bounded queue from any number of threads to one thread, taken in batches."""

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

    ``put`` blocks its thread, an event loop too, while ``limit`` bytes are waiting. The receiving
    thread needs no event loop to go on, so that cannot deadlock; it lasts as long as the disk
    needs for the surplus.
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
        """All that waits, up to ``most`` jobs or ``size`` bytes, and at least one job.

        Empty after ``timeout`` seconds without a job; None once closed and drained.
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
        """Accept nothing more. What is queued can still be taken."""
        with self._arrival:
            self._closed = True
            self._arrival.notify_all()
            self._room.notify_all()
