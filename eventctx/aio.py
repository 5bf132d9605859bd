"""Waiting in asyncio: work that outlives a cancellation, locks by name, calls with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


async def undisturbed(work: Coroutine[Any, Any, T], grace: float | None = None) -> T:
    """Await ``work`` to its end. A cancellation in between is raised when it is done.

    So who is cancelled knows whether the work was done: it was, or it raised, which is then the
    cancellation's ``__cause__``. With ``grace``, work that takes more seconds than that after a
    cancellation is cancelled too.
    """
    task = asyncio.ensure_future(work)
    broken: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task}, timeout=None if broken is None else grace)
            if broken is not None:
                task.cancel()
        except asyncio.CancelledError as error:
            broken = error
    if broken is not None:
        raise broken from (None if task.cancelled() else task.exception())
    return task.result()


async def insisted(emit: Callable[[], Awaitable[None]]) -> None:
    """Await ``emit()`` until it was not cancelled, and raise the cancellation then.

    For an emit that waits before it does anything, and does it without waiting: cheaper than a
    task for each of thousands of records.
    """
    broken: asyncio.CancelledError | None = None
    while True:
        try:
            await emit()
            break
        except asyncio.CancelledError as error:
            broken = error
    if broken is not None:
        raise broken


class KeyedLock:
    """A lock per name, for tasks of any thread and loop; those that nobody holds take no room."""

    def __init__(self) -> None:
        self._held: dict[str, Future[None]] = {}

    @asynccontextmanager
    async def __call__(self, name: str) -> AsyncIterator[None]:
        """Hold ``name``, once those that asked before have let go of it."""
        mine: Future[None] = Future()
        # A future that runs cannot be cancelled, so one who gives up waiting leaves it to others.
        mine.set_running_or_notify_cancel()
        while (held := self._held.setdefault(name, mine)) is not mine:
            await asyncio.wait([asyncio.wrap_future(held)])
        try:
            yield
        finally:
            del self._held[name]
            mine.set_result(None)


def within(seconds: float, call: Callable[[], object], name: str) -> bool:
    """Make the call in a thread of its own; false when it is not done after ``seconds``.

    Then it goes on alone, and does not keep the program from ending. What it raises is raised here.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    return not thread.is_alive()
