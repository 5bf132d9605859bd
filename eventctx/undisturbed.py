"""Finishing what was begun although the task that waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
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
