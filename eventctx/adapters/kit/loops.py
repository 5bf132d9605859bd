"""Calling an engine from where its event loop does not run: other loops, and hosts without one.

A session belongs to the loop of its engine. For hosts that call synchronously, or from a new loop
for each run, the engine is one of ``eventctx.sync``, whose loop runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from eventctx.aio import finish
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.session.context import Context
from eventctx.sync.proxy import SyncContext, SyncEngine, in_its_loop

T = TypeVar("T")

_of_engines: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()
_of_parent: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()
"""Loops that a fork left to this process. They say that they run, and run no more."""


def noted(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """The loop of an engine, known from now on to a process that is forked off."""
    _of_engines.add(loop)
    return loop


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _of_parent.update(_of_engines))


def engine_in_loop(
    engine: Engine | SyncEngine, whose: str
) -> tuple[Engine, asyncio.AbstractEventLoop]:
    """An engine and its loop: that of the caller, or the thread's of an ``eventctx.sync`` engine.

    Raises InvalidSetting, in the name of ``whose``, where no loop runs for an async engine.
    """
    if not isinstance(engine, SyncEngine):
        return engine, _own_loop(whose)
    own, loop = in_its_loop(engine)
    return own, noted(loop)


def context_in_loop(
    context: Context | SyncContext, whose: str
) -> tuple[Context, asyncio.AbstractEventLoop]:
    """As ``engine_in_loop``, of a session's context."""
    if not isinstance(context, SyncContext):
        return context, _own_loop(whose)
    own, loop = in_its_loop(context)
    return own, noted(loop)


def _own_loop(whose: str) -> asyncio.AbstractEventLoop:
    try:
        return noted(asyncio.get_running_loop())
    except RuntimeError:
        raise InvalidSetting(
            f"{whose}: expected an engine in its event loop, found no loop that runs: "
            "make it inside the loop, or with an engine of eventctx.sync"
        ) from None


_locks: Final[WeakKeyDictionary[Context, asyncio.Lock]] = WeakKeyDictionary()


def writing_lock(context: Context) -> asyncio.Lock:
    """The lock of a session, for adapters that compare a host's list with it, and then write.

    Two adapters may mirror one host, as a middleware and a checkpoint saver do.
    """
    return _locks.setdefault(context, asyncio.Lock())


class EngineLoop:
    """The loop of an engine, for an adapter whose host calls from any loop, or from none."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work`` in the engine's loop. It is finished when cancelled, too."""
        return await run_in(self._loop, work)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Block until ``work`` is done. Raises InvalidSetting in the engine's own loop."""
        return wait_in(self._loop, work)


async def run_in(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` in ``loop``, which may be another one. It is finished when cancelled, too.

    Raises InvalidSetting where that loop does not run, and would never do the work.
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
    if loop in _of_parent:
        work.close()
        raise InvalidSetting(
            "expected an engine that this process opened, found one that it inherited by a fork: "
            "open the store, and make the adapter, in the process that runs the agent"
        )
    if not loop.is_running():
        work.close()
        raise InvalidSetting(
            "expected the event loop of the engine to run, found that it does not: the adapter was "
            "closed, or the run of its loop is over; open the engine in the loop that runs the "
            "agent, or with eventctx.sync.open"
        )
