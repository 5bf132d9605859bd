"""Clocks and medians. A floor and its subject are always measured in turns, in one loop."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

now = time.perf_counter


class Samples:
    """Durations in seconds, by name, in the order in which they were taken."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[float]] = {}

    def add(self, name: str, seconds: float) -> None:
        """One more duration."""
        self.by_name.setdefault(name, []).append(seconds)

    async def time(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Time an awaitable, and return what it gave."""
        began = now()
        result = await work()
        self.add(name, now() - began)
        return result

    def time_call(self, name: str, work: Callable[[], Any]) -> Any:
        """Time a plain call, and return what it gave."""
        began = now()
        result = work()
        self.add(name, now() - began)
        return result

    def median(self, name: str) -> float:
        """The median in seconds."""
        return statistics.median(self.by_name[name])

    def micro(self, name: str) -> float:
        """The median in microseconds."""
        return self.median(name) * 1e6

    def milli(self, name: str) -> float:
        """The median in milliseconds."""
        return self.median(name) * 1e3


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of all lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
