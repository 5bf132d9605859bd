"""Questions that read much of a log, answered in a thread of their own.

A question may compute for a second. In the loop that serves, every stream and every other page
would wait for it. Here it has a loop and a reader of its own, whose key frames no other thread
touches.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from eventctx.reader import Reader, read

T = TypeVar("T")


class Apart:
    """A second reader of the store at ``url``, opened by the first question."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opening = asyncio.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._reader: Reader

    async def ask(self, question: Callable[[Reader], Coroutine[Any, Any, T]]) -> T:
        """The answer to a question; raises what the question raises."""
        async with self._opening:
            if self._thread is None:
                await self._open()
        asked = asyncio.run_coroutine_threadsafe(question(self._reader), self._loop)
        return await asyncio.wrap_future(asked)

    async def close(self) -> None:
        """End the thread; what it is asked at that moment is cancelled."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    async def _open(self) -> None:
        ready: Future[None] = Future()

        def run() -> None:
            try:
                asyncio.run(self._main(ready))
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        thread = threading.Thread(target=run, name="eventctx-questions", daemon=True)
        thread.start()
        await asyncio.wrap_future(ready)
        self._thread = thread

    async def _main(self, ready: Future[None]) -> None:
        async with read(self._url) as reader:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self._reader = reader
            ready.set_result(None)
            await self._stop.wait()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
