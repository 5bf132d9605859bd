"""Time limits of asyncio that end at once: a test puts the loop's clock forward.

A limit so short that a test can sit it out is one that a busy machine exceeds. With a limit of
half a minute, and a clock that the hanging thing itself puts forward by more, only that ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

LIMIT = 30.0
"""Seconds: longer than anything here takes, and passed at once by what hangs."""


class _Ahead:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.seconds = 0.0

    def __call__(self) -> float:
        return self._clock() + self.seconds


def put_forward(seconds: float = 2 * LIMIT) -> None:
    """Put the running loop's clock forward: waits of up to so many seconds are over.

    Whoever keeps ``loop.time`` itself keeps the clock of that moment: call this with 0 before.
    """
    loop: Any = asyncio.get_running_loop()
    if not isinstance(loop.time, _Ahead):
        loop.time = _Ahead(loop.time)
    loop.time.seconds += seconds


async def hang_past_the_limit(*_: Any) -> Any:
    """Never return; whoever waits for LIMIT seconds sees them pass."""
    put_forward()
    await asyncio.Event().wait()
