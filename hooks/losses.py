"""Writing losses down, so that they outlive the process: soon after they happen, and at the end.

Nobody waits for it and nobody polls. The first loss starts a thread, which lives until all that was
noted is written; what cannot be written is tried again with the next loss and at the end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, RLock, Thread
from typing import Final

from eventctx.hooks.forking import renew_after_fork
from eventctx.hooks.registry import Hooks
from eventctx.log.hook_failures import Loss, LossBook, LossKind

DELAY: Final = 0.5
"""Seconds for which losses are gathered before they are written."""

_log = logging.getLogger("eventctx.hooks")


class LossRecorder:
    """Writes what is lost into a book: of a registry's handlers, and what else ``note`` is told.

    Safe to call from any thread. Engines that share a registry and a book count a loss once.
    ``clock`` returns UTC nanoseconds.
    """

    def __init__(
        self, hooks: Hooks, book: LossBook, *, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._book = book
        self._clock = clock
        self._noted: dict[tuple[str, LossKind], tuple[int, int]] = {}
        self._thread: Thread | None = None
        self._closing = Event()
        self._told = False
        self._lock = RLock()
        self._writing = RLock()
        self._stop = hooks.on_loss(book.place, self.note)
        renew_after_fork(self)

    def note(self, handler: str, kind: LossKind, count: int = 1) -> None:
        """Take note of a loss. Never raises, waits for nothing."""
        with self._lock:
            before, _ = self._noted.get((handler, kind), (0, 0))
            self._noted[handler, kind] = (before + count, self._clock())
            if self._thread is not None or self._closing.is_set():
                return
            self._thread = Thread(target=self._run, name="eventctx-losses", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no more threads, or the interpreter is ending
                self._thread = None

    def read(self) -> tuple[Loss, ...]:
        """What the book holds, with all that was noted here. Blocks. Raises as ``LossBook.read``"""
        self._write()
        return self._book.read()

    async def close(self) -> None:
        """Write what is left, and hear of nothing more. May be called again."""
        self._stop()
        self._closing.set()
        if self._noted or self._thread is not None:
            await asyncio.to_thread(self._write)

    def after_fork(self) -> None:
        """In a forked child: what was noted is the parent's to write."""
        self._lock, self._writing, self._closing = RLock(), RLock(), Event()
        self._noted.clear()
        self._thread = None

    def _run(self) -> None:
        while True:
            if self._closing.wait(DELAY):
                return  # who closes writes the rest, and nothing is written after that
            written = self._write()
            with self._lock:
                if not self._noted or not written:
                    self._thread = None
                    return

    def _write(self) -> bool:
        with self._writing:
            with self._lock:
                taken, self._noted = self._noted, {}
            if not taken:
                return True
            losses = [Loss(*key, count, last) for key, (count, last) in taken.items()]
            try:
                self._book.add(losses)
            except Exception as error:
                self._put_back(losses)
                self._complain(error)
                return False
            return True

    def _put_back(self, losses: list[Loss]) -> None:
        with self._lock:
            for one in losses:
                count, last = self._noted.get((one.handler, one.kind), (0, 0))
                self._noted[one.handler, one.kind] = (count + one.count, max(last, one.last))

    def _complain(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            with suppress(Exception):
                _log.warning(
                    "what hooks lost cannot be written down: %s; the agent goes on, this is said "
                    "once",
                    error,
                )
