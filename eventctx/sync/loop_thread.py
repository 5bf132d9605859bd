"""An event loop in a thread of its own, which runs coroutines for callers without a loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any

from eventctx.errors import InvalidSetting


class LoopThread:
    """Runs one coroutine at a time for each calling thread, and waits for it.

    The coroutines of one calling thread share their context variables, as the statements of one
    task do: so a turn that one call enters is the scope of the next one.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        # A daemon: a program that never closed its engine can end, after the hooks of ``atexit``.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._callers = threading.local()
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether ``end`` was called."""
        return not self._thread.is_alive()

    def is_current(self) -> bool:
        """Whether the caller runs in this thread, where ``call`` would wait for ever."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def call(self, function: Callable[[], Any]) -> Any:
        """Call ``function`` in the loop, and wait for its result where that is awaitable.

        Its errors are raised here. An interrupt (Ctrl-C) cancels it and is raised at its end.
        """
        if self.is_current():
            raise InvalidSetting(
                "expected a call from a thread of the program, found one from a "
                "hook or function that the engine calls; use the async API there"
            )
        if self.ended:
            raise InvalidSetting("expected an open engine, found a closed one")
        if not hasattr(self._callers, "context"):
            self._callers.context = contextvars.copy_context()
        context: contextvars.Context = self._callers.context
        done: Future[Any] = Future()
        started: list[asyncio.Task[Any]] = []

        def start() -> None:
            task = self.loop.create_task(_result(function), context=context)
            started.append(task)
            task.add_done_callback(lambda task: _settle(done, task))

        self.loop.call_soon_threadsafe(start)
        try:
            return done.result()
        except KeyboardInterrupt:
            self.loop.call_soon_threadsafe(lambda: [task.cancel() for task in started])
            while not done.done():
                try:
                    done.exception()
                except (CancelledError, KeyboardInterrupt):
                    continue
            raise

    def end(self) -> None:
        """Stop the loop, and wait for the thread. A second call does nothing."""
        if not self.ended:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()


async def _result(function: Callable[[], Any]) -> Any:
    found = function()
    return await found if isinstance(found, Coroutine) or hasattr(found, "__await__") else found


def _settle(done: Future[Any], task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if task.cancelled():
        done.cancel()
        done.set_running_or_notify_cancel()
    elif error is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())
