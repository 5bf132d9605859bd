"""Letting tasks do something for the same name one after the other, whatever loop each runs on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager


class OneAtATime:
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
