"""Clocks and medians. A floor and its subject are always measured in turns, in one loop."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

now = time.perf_counter


class Samples:
    """Durations in seconds, by name, in the order in which they were taken.

    ``by_name`` holds time on the wall, ``processor`` the processor time of the same steps, of all
    threads of this process.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, list[float]] = {}
        self.processor: dict[str, list[float]] = {}

    def add(self, name: str, seconds: float, processor: float | None = None) -> None:
        """One more duration, and its processor time where that is known."""
        self.by_name.setdefault(name, []).append(seconds)
        if processor is not None:
            self.processor.setdefault(name, []).append(processor)

    @contextmanager
    def step(self, name: list[str]) -> Iterator[None]:
        """Time a block; ``name`` holds what it was, which may show itself in the block."""
        spent, began = time.process_time(), now()
        yield
        took = now() - began
        self.add(name[0], took, time.process_time() - spent)

    async def time(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Time an awaitable, and return what it gave."""
        spent, began = time.process_time(), now()
        result = await work()
        took = now() - began
        self.add(name, took, time.process_time() - spent)
        return result

    def time_call(self, name: str, work: Callable[[], Any]) -> Any:
        """Time a plain call, and return what it gave."""
        spent, began = time.process_time(), now()
        result = work()
        took = now() - began
        self.add(name, took, time.process_time() - spent)
        return result

    def clear(self) -> None:
        """Forget what was not to be counted."""
        self.by_name.clear()
        self.processor.clear()

    def cpu(self, name: str, operations: int = 1) -> float | None:
        """The median processor time in microseconds, as a row wants it; None if none was taken.

        ``operations`` says how many of what the row counts a step holds.
        """
        taken = self.processor.get(name)
        return statistics.median(taken) * 1e6 / operations if taken else None

    def median(self, name: str) -> float:
        """The median in seconds."""
        return statistics.median(self.by_name[name])

    def micro(self, name: str) -> float:
        """The median in microseconds."""
        return self.median(name) * 1e6

    def milli(self, name: str) -> float:
        """The median in milliseconds."""
        return self.median(name) * 1e3


def tail(samples: Samples, name: str) -> str:
    """What the slowest of a hundred takes on the wall, for a note."""
    return f"p99 {quantile(samples.by_name[name], 0.99) * 1e6:,.0f} µs"


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of all lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
