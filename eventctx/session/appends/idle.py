"""The clock of what waits for the next call: it rings when none comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Final

IDLE_SECONDS: Final = 0.05
"""How long activity waits at most for a call that takes it along."""


class Idle:
    """Calls ``rang`` in a loop, ``IDLE_SECONDS`` after it was last started."""

    def __init__(self, rang: Callable[[], None]) -> None:
        self._rang = rang
        self._loop: asyncio.AbstractEventLoop | None = None
        self._since = 0.0

    def start(self) -> None:
        """Count from now on."""
        self._since = perf_counter()

    def set(
        self, seconds: float = IDLE_SECONDS, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Have it ring in this thread's loop, unless a running loop will do so already.

        In ``loop``, where given, which may run in another thread.
        """
        if self._loop is not None and self._loop.is_running():
            return
        with suppress(RuntimeError):  # no loop, or a closed one: the next call does the work
            if loop is None:
                self._loop = asyncio.get_running_loop()
                self._loop.call_later(seconds, self._ring)
            else:
                self._loop = loop
                loop.call_soon_threadsafe(loop.call_later, seconds, self._ring)

    def _ring(self) -> None:
        self._loop = None
        early = self._since + IDLE_SECONDS - perf_counter()
        if early > 0:
            self.set(early)  # what it was set for went with another call
        else:
            self._rang()
