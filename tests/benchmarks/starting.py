"""Importing the package in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row
from tests.benchmarks.timing import Samples

FIGURE = "start"
_PROGRAM = """
import time
spent, began = time.process_time(), time.perf_counter()
def took():
    print(time.perf_counter() - began, time.process_time() - spent)
import eventctx
took()
eventctx.open
import eventctx.stores.sqlite
took()
"""


async def measure(place: Place) -> list[Row]:
    samples = Samples()
    for _ in range(place.count(15, 5)):
        ran = subprocess.run(  # noqa: ASYNC221 - nothing else is to run meanwhile
            [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
        )
        for name, line in zip(("package", "engine"), ran.stdout.splitlines(), strict=True):
            samples.add(name, *map(float, line.split()))
    return [
        Row(
            figure=FIGURE,
            name="import eventctx",
            value=samples.milli("package"),
            unit="ms",
            limit=15.0,
            cpu=samples.cpu("package"),
        ),
        Row(
            figure=FIGURE,
            name="import eventctx, the engine and the SQLite store",
            value=samples.milli("engine"),
            unit="ms",
            limit=100.0,
            cpu=samples.cpu("engine"),
            note="what the first eventctx.open() needs",
        ),
    ]
