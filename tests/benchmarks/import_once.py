"""Import a file in this process, or a folder by so many workers; with one, on a single core.

Prints the seconds that it took, those of the processors, and the most memory used by this process,
in MiB.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from pathlib import Path

import eventctx
from eventctx.importers.many import import_paths


async def run(source: Path, store: Path, workers: int) -> tuple[float, float]:
    async with eventctx.open(store) as engine:
        spent, began = processor_time(), time.perf_counter()
        await import_paths(engine.store, [source], workers=workers, workers_from=0)
        return time.perf_counter() - began, processor_time() - spent


def processor_time() -> float:
    """Seconds of this process, and of those that it started and that ended."""
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak() -> float:
    """The most memory this process had resident, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux it outlives exec, so a child begins with its parent's peak.
        found = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(found[0].split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def stay_on_one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


if __name__ == "__main__":
    workers = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    if workers == 1:
        stay_on_one_core()
    print(*asyncio.run(run(Path(sys.argv[1]), Path(sys.argv[2]), workers or 1)), peak())
