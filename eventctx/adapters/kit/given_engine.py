"""The engine that an adapter was given, or opens itself, and the event loop that it works in."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

from eventctx.adapters.kit.loops import run_in, wait_in
from eventctx.engine import Engine, open_engine
from eventctx.errors import InvalidSetting
from eventctx.sync.loop_thread import LoopThread

T = TypeVar("T")


class GivenEngine:
    """An engine for an adapter whose host calls from any loop, or from none.

    An engine is used in the loop that runs where this is made. The path or URL of a store is opened
    in a thread of its own, until ``close`` or the end of the program. ``adapter`` names it in
    errors. Raises InvalidSetting for an engine without a loop, and what opening a store raises.
    """

    def __init__(self, engine: Engine | str | os.PathLike[str], adapter: str) -> None:
        self._own: LoopThread | None = None
        if isinstance(engine, Engine):
            self.engine = engine
            self._loop = _loop_of_caller(adapter)
        else:
            self._own = LoopThread(f"eventctx-{adapter}")
            self._loop = self._own.loop
            self.engine = self._own.call(lambda: _opened(os.fspath(engine)))
            atexit.register(self.close)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work`` in the engine's loop. It is finished when cancelled, too."""
        return await run_in(self._loop, work)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Block until ``work`` was done. Raises InvalidSetting in the engine's own loop."""
        return wait_in(self._loop, work)

    def close(self) -> None:
        """Close the store that was opened here. An engine that was given stays open."""
        if self._own is not None:
            own, self._own = self._own, None
            atexit.unregister(self.close)
            own.call(self.engine.close)
            own.end()


def _loop_of_caller(adapter: str) -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidSetting(
            f"{adapter}: expected an engine in its event loop, found no loop that runs: "
            "make it inside the loop, or give the path of a store"
        ) from None


async def _opened(store: str) -> Engine:
    engine: Engine = await open_engine(store)
    return engine
