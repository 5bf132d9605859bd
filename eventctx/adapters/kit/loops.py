"""Calling an engine from where its event loop does not run: other loops, and hosts without one.

A session belongs to the loop of its engine. ``OwnLoop`` is a loop in a thread of its own, for hosts
that call synchronously, or from a new loop for each run.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from eventctx.aio import finish
from eventctx.errors import InvalidSetting

T = TypeVar("T")


class OwnLoop:
    """An event loop that runs in a daemon thread until ``close``."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the loop when what it runs now has come to a pause; a second call does nothing."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


async def run_in(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` in ``loop``, which may be another one. It is finished when cancelled, too."""
    if asyncio.get_running_loop() is loop:
        return await work
    return await finish(_of_future(loop, work))


async def _of_future(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def wait_in(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Block until ``work`` was done in ``loop``, which runs in another thread.

    Raises InvalidSetting in the loop's own thread, where that would wait for ever.
    """
    try:
        own = asyncio.get_running_loop() is loop
    except RuntimeError:
        own = False
    if own:
        work.close()
        raise InvalidSetting(
            "expected an asynchronous call in the event loop of the engine, found a synchronous "
            "one: await the host's asynchronous method, or give the adapter a store's path"
        )
    return asyncio.run_coroutine_threadsafe(work, loop).result()
