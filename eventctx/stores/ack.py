"""Awaitables that one thread settles and any event loop may await.

``concurrent.futures.Future`` with ``asyncio.wrap_future`` costs a lock, a condition and one wake-up
of the loop per append. An ``Ack`` has no lock, and ``settle`` wakes each loop once per batch.

Invariant: an await adds its waiter before it reads ``_done``, and settling sets ``_done`` before it
reads the waiters. At least one side therefore sees the other, and no wake-up is lost.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Generator, Iterable
from typing import Any, Generic, TypeVar

from eventctx.errors import StoreUnavailable

T = TypeVar("T")


class Ack(Generic[T]):
    """The outcome of work in another thread.

    Any event loop may await it, once, several times, or never. Cancelling an await does not cancel
    the work. An error that nobody awaits is dropped without a warning. In a forked child, to which
    the thread did not come along, an await of unsettled work raises StoreUnavailable.
    """

    __slots__ = ("_done", "_error", "_forks", "_value", "_waiters")

    def __init__(self) -> None:
        self._forks = _forks
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @classmethod
    def of(cls, value: T) -> Ack[T]:
        """An ack that is already settled with ``value``."""
        ack = cls()
        ack._set(value, None)
        return ack

    @classmethod
    def failed(cls, error: BaseException) -> Ack[T]:
        """An ack that is already settled with ``error``."""
        ack = cls()
        ack._set(None, error)
        return ack

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._done

    def _set(self, value: T | None, error: BaseException | None) -> list[asyncio.Future[None]]:
        """Settle, and return the waiters to wake."""
        self._value, self._error = value, error
        self._done = True
        return self._waiters

    def __await__(self) -> Generator[Any, None, T]:
        if not self._done:
            if self._forks != _forks:
                raise StoreUnavailable(
                    "expected the process that began this work, found one that was forked from it "
                    "meanwhile; open stores after the fork, or start the process with 'spawn'"
                )
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # Add the waiter first, look at ``_done`` again second: see the module's invariant.
            self._waiters.append(waiter)
            if not self._done:
                yield from waiter.__await__()
        if self._error is not None:
            try:
                raise self._error
            finally:
                del self  # the traceback would hold the ack that holds the error
        return self._value  # type: ignore[return-value]


_forks = 0
"""How many forks lie between the first process and this one."""


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


Outcome = tuple[Ack[Any], Any, BaseException | None]


def settle(outcomes: Iterable[Outcome]) -> None:
    """Settle many acks with one wake-up per event loop that waits for any of them."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for ack, value, error in outcomes:
        for waiter in ack._set(value, error):
            loops.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, waiters in loops.items():
        try:
            loop.call_soon_threadsafe(_wake, waiters)
        except RuntimeError:
            continue  # the loop was closed, and its waiters with it


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


class Bell:
    """Wakes subscriptions after a commit.

    A subscription calls ``listen()`` first, reads records second, and awaits the ack of the first
    step third. Any commit after the first step settles that ack, so no record is missed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: Ack[None] = Ack()

    def listen(self) -> Ack[None]:
        """The ack that the next ``ring`` settles."""
        return self._next

    def ring(self) -> None:
        """Settle the ack that listeners hold. Callable from any thread."""
        with self._lock:
            rung, self._next = self._next, Ack()
        settle([(rung, None, None)])
