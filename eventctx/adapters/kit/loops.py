"""Calling an engine from where its event loop does not run: other loops, and hosts without one.

A session belongs to the loop of its engine. For hosts that call synchronously, or from a new loop
for each run, the engine is one of ``eventctx.sync``, whose loop runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from eventctx.aio import finish
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.session.context import Context
from eventctx.sync.proxy import SyncContext, SyncEngine, in_its_loop

T = TypeVar("T")


def engine_in_loop(
    engine: Engine | SyncEngine, whose: str
) -> tuple[Engine, asyncio.AbstractEventLoop]:
    """An engine and its loop: that of the caller, or the thread's of an ``eventctx.sync`` engine.

    Raises InvalidSetting, in the name of ``whose``, where no loop runs for an async engine.
    """
    return in_its_loop(engine) if isinstance(engine, SyncEngine) else (engine, _own_loop(whose))


def context_in_loop(
    context: Context | SyncContext, whose: str
) -> tuple[Context, asyncio.AbstractEventLoop]:
    """As ``engine_in_loop``, of a session's context."""
    return in_its_loop(context) if isinstance(context, SyncContext) else (context, _own_loop(whose))


def _own_loop(whose: str) -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidSetting(
            f"{whose}: expected an engine in its event loop, found no loop that runs: "
            "make it inside the loop, or with an engine of eventctx.sync"
        ) from None


async def run_in(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` in ``loop``, which may be another one. It is finished when cancelled, too.

    Raises InvalidSetting where that loop does not run, so that nobody would do the work.
    """
    if asyncio.get_running_loop() is loop:
        return await work
    _expect_running(loop, work)
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
    _expect_running(loop, work)
    return asyncio.run_coroutine_threadsafe(work, loop).result()


def _expect_running(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> None:
    if not loop.is_running():
        work.close()
        raise InvalidSetting(
            "expected the event loop of the engine to run, found that it does not: open the engine "
            "in the loop that runs the agent, or with eventctx.sync.open"
        )
