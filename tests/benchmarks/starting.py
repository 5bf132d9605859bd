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
began = time.perf_counter()
import eventctx
print(time.perf_counter() - began)
eventctx.open
import eventctx.stores.sqlite
print(time.perf_counter() - began)
"""


async def measure(place: Place) -> list[Row]:
    samples = Samples()
    for _ in range(place.count(15, 5)):
        ran = subprocess.run(  # noqa: ASYNC221 - nothing else is to run meanwhile
            [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
        )
        package, engine = ran.stdout.split()
        samples.add("package", float(package))
        samples.add("engine", float(engine))
    return [
        Row(
            figure=FIGURE,
            name="import eventctx",
            value=samples.milli("package"),
            unit="ms",
            limit=100.0,
        ),
        Row(
            figure=FIGURE,
            name="import eventctx, the engine and the SQLite store",
            value=samples.milli("engine"),
            unit="ms",
            limit=100.0,
            note="what the first eventctx.open() needs",
        ),
    ]
