"""The engine that an adapter was given, or opens itself, and the event loop that it works in."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from typing import Any, TypeVar

from eventctx.adapters.kit.loops import engine_in_loop, run_in, wait_in
from eventctx.engine import Engine
from eventctx.sync.loop_thread import LoopThread
from eventctx.sync.proxy import SyncEngine, opened

T = TypeVar("T")


class GivenEngine:
    """An engine for an adapter whose host calls from any loop, or from none.

    An engine is used in the loop that runs where this is made, one of ``eventctx.sync`` in its own.
    The path or URL of a store is opened as one of ``eventctx.sync``, until ``close`` or the end of
    the program. ``adapter`` names it in errors. Raises InvalidSetting for an engine without a loop,
    and what opening a store raises.
    """

    def __init__(self, engine: Engine | SyncEngine | str | os.PathLike[str], adapter: str) -> None:
        self._own: SyncEngine | None = None
        if not isinstance(engine, Engine | SyncEngine):
            thread = LoopThread(f"eventctx-{adapter}")
            engine = self._own = opened(thread, [os.fspath(engine)], {})
        self.engine, self._loop = engine_in_loop(engine, adapter)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work`` in the engine's loop. It is finished when cancelled, too."""
        return await run_in(self._loop, work)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Block until ``work`` was done. Raises InvalidSetting in the engine's own loop."""
        return wait_in(self._loop, work)

    def close(self) -> None:
        """Close the store that was opened here. An engine that was given stays open."""
        if self._own is not None:
            self._own.close()
