"""Fresh interpreters: the import, the first open with one message, and the command line.

The figures are processor time of all threads of the process, beyond that of an interpreter that
does nothing: what a process pays before it does any work of its own.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, of_processor

FIGURE = "start"
_WRITES_NOTHING = "PYTHONDONTWRITEBYTECODE"

_IMPORT = "import eventctx"
_OPEN = """
import asyncio, sys
import eventctx

async def main():
    async with eventctx.open(sys.argv[1], receipts=False) as engine:
        context = await engine.session("first")
        await context.add_message({"role": "user", "content": "Count the files."})

asyncio.run(main())
"""
_VERSION = "from eventctx.cli.start import main; main()"
_PROGRAMS = {"nothing": "pass", "import": _IMPORT, "open": _OPEN, "version": _VERSION}


async def measure(place: Place) -> list[Row]:
    taken: dict[str, list[float]] = {name: [] for name in _PROGRAMS}
    # The first round writes the compiled modules, which later processes only read.
    for turn in range(place.count(15, 5) + 1):
        arguments = {"open": str(place.path(f"first-{turn}.db")), "version": "--version"}
        for name, program in _PROGRAMS.items():
            took = _processor_seconds([sys.executable, "-c", program, arguments.get(name, "")])
            if turn:
                taken[name].append(took)
    idle = statistics.median(taken["nothing"])
    spent = {name: (statistics.median(values) - idle) * 1e3 for name, values in taken.items()}
    return [
        of_processor(Row(figure=FIGURE, name=name, value=value, unit="ms", limit=limit, note=note))
        for name, value, limit, note in (
            ("import eventctx", spent["import"], 15.0, ""),
            ("first eventctx.open() of a file, one message", spent["open"], 100.0, "with asyncio"),
            ("eventctx --version", spent["version"], None, ""),
        )
    ]


def _processor_seconds(command: list[str]) -> float:
    """The processor time of a process, with that of the system for it."""
    environment = {key: value for key, value in os.environ.items() if key != _WRITES_NOTHING}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
