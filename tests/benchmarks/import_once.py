"""Import one file in this process.

Prints the seconds that it took, those of the processor, and the most memory used, in MiB.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from pathlib import Path

import eventctx
from eventctx.importers.load import import_file


async def run(source: Path, store: Path) -> tuple[float, float]:
    async with eventctx.open(store) as engine:
        spent, began = time.process_time(), time.perf_counter()
        await import_file(engine.store, source)
        return time.perf_counter() - began, time.process_time() - spent


def peak() -> float:
    """The most memory this process had resident, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux it outlives exec, so a child begins with its parent's peak.
        found = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(found[0].split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    print(*asyncio.run(run(Path(sys.argv[1]), Path(sys.argv[2]))), peak())
