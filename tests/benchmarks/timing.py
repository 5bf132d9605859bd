"""Where the files of a run go, and how much of the work is done; clocks and medians."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple


class Place:
    """A folder of its own below ``parent``, removed at the end. ``quick`` does a tenth of the work.

    All files of a run lie in it, so that a floor and its subject use the same disk.
    """

    def __init__(self, parent: Path, quick: bool) -> None:
        self.quick = quick
        self.folder = Path(tempfile.mkdtemp(prefix="eventctx-bench-", dir=parent))
        self._made = 0
        self._run: Place | None = None

    def inner(self) -> Place:
        """The place of one module, which ends before the run's."""
        made = Place(self.folder, self.quick)
        made._run = self
        return made

    def path(self, name: str) -> Path:
        """A path that no other call got."""
        self._made += 1
        return self.folder / f"{self._made}-{name}"

    async def shared(self, name: str, make: Callable[[Path], Awaitable[Any]]) -> Path:
        """A file that takes long to make: the first module that asks makes it, for the whole run.

        Others only read it, or copy it.
        """
        path = (self._run or self).folder / name
        if not path.exists():
            part = path.with_name(f"part of {name}")
            await make(part)
            part.rename(path)
        return path

    def count(self, full: int, quick: int | None = None) -> int:
        """How often to do something: ``full``, or a tenth of it (or ``quick``) in a quick run."""
        if not self.quick:
            return full
        return quick if quick is not None else max(1, full // 10)

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


# -- clocks: a floor and its subject are always measured in turns, in one loop ---------------------


class Samples:
    """Durations in seconds, by name, in the order in which they were taken.

    ``by_name`` holds time on the wall, of which ``median``, ``milli`` and ``micro`` are medians;
    ``processor`` the processor time of the same steps, of all threads of this process.
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
    def step(self, name: str) -> Iterator[None]:
        spent, began = time.process_time(), time.perf_counter()
        yield
        took = time.perf_counter() - began
        self.add(name, took, time.process_time() - spent)

    async def time(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        with self.step(name):
            return await work()

    def time_call(self, name: str, work: Callable[[], Any]) -> Any:
        with self.step(name):
            return work()

    def cpu(self, name: str, operations: int = 1) -> float | None:
        """The median processor time in microseconds, as a row wants it; None if none was taken.

        ``operations`` says how many of what the row counts a step holds.
        """
        taken = self.processor.get(name)
        return statistics.median(taken) * 1e6 / operations if taken else None

    def seconds(self, name: str) -> float:
        """The median processor time in seconds."""
        return statistics.median(self.processor[name])

    def median(self, name: str) -> float:
        return statistics.median(self.by_name[name])

    def micro(self, name: str) -> float:
        return self.median(name) * 1e6

    def milli(self, name: str) -> float:
        return self.median(name) * 1e3


def tail(samples: Samples, name: str) -> str:
    """What the slowest of a hundred takes on the wall, for a note."""
    ordered = sorted(samples.by_name[name])
    return f"p99 {ordered[int(0.99 * len(ordered))] * 1e6:,.0f} µs"


# -- processes -------------------------------------------------------------------------------------

EVENTCTX = "from eventctx.cli.start import main; main()"
"""The command line, for ``python -c``."""

_WRITES_NOTHING = "PYTHONDONTWRITEBYTECODE"


class Ran(NamedTuple):
    """What a process took, in seconds, with its children and the system's part; its output."""

    wall: float
    processor: float
    output: str


def ran(*words: object, cores: int | None = None) -> Ran:
    """Run Python to its good end; ``cores`` is how many it may use."""
    # The compiled modules are written by the first process, and only read by later ones.
    environment = {key: value for key, value in os.environ.items() if key != _WRITES_NOTHING}
    limit: Callable[[], None] | None = None
    if cores and hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))[:cores]
        limit = partial(os.sched_setaffinity, 0, allowed)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        preexec_fn=limit,
    )
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ran(took, spent, done.stdout)
