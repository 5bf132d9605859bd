"""Time on the wall, and processor time of this process beside it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.benchmarks.timing import Samples, now, quantile


class Both:
    """Durations by name, of both clocks. The processor's counts all threads of the process."""

    def __init__(self) -> None:
        self.wall = Samples()
        self.processor = Samples()

    @contextmanager
    def step(self, name: list[str]) -> Iterator[None]:
        """Time a block; ``name`` holds what it was, which may show itself in the block."""
        began, spent = now(), time.process_time()
        yield
        self.processor.add(name[0], time.process_time() - spent)
        self.wall.add(name[0], now() - began)

    async def time(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Time an awaitable, and return what it gave."""
        with self.step([name]):
            return await work()

    def time_call(self, name: str, work: Callable[[], Any]) -> Any:
        """Time a plain call, and return what it gave."""
        with self.step([name]):
            return work()

    def clear(self) -> None:
        """Forget what was not to be counted."""
        self.wall.by_name.clear()
        self.processor.by_name.clear()

    def note(self, name: str) -> str:
        """The tail, and the processor's median."""
        tail = quantile(self.wall.by_name[name], 0.99) * 1e6
        return f"p99 {tail:,.0f} µs; processor time {self.processor.micro(name):,.0f} µs"
