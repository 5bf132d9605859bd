"""Calling an engine from where its event loop does not run: other loops, and hosts without one.

A session belongs to the loop of its engine. For hosts that call synchronously, or from a new loop
for each run, the engine is opened in a ``LoopThread``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from eventctx.aio import finish
from eventctx.errors import InvalidSetting

T = TypeVar("T")


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
