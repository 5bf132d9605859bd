"""Fresh interpreters: the import, the first open with one message, and every command's help.

The figures are processor time beyond that of an interpreter that does nothing, but for the help,
which a person waits for as a whole.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Final

import click

from eventctx.cli.main import cli
from tests.benchmarks.rows import Row, target
from tests.benchmarks.timing import EVENTCTX, Place, ran

FIGURE = "start"

_OPEN: Final = """
import asyncio, sys
import eventctx

async def main():
    async with eventctx.open(sys.argv[1], receipts=False) as engine:
        context = await engine.session("first")
        await context.add_message({"role": "user", "content": "Count the files."})

asyncio.run(main())
"""
_PROGRAMS: Final = {
    "nothing": "pass",
    "asyncio, sqlite3": "import asyncio, sqlite3; asyncio.run(asyncio.sleep(0))",
    "import": "import eventctx",
    "open": _OPEN,
}


async def measure(place: Place) -> list[Row]:
    taken: dict[str, list[float]] = {name: [] for name in _PROGRAMS}
    for turn in range(place.count(15, 5) + 1):
        for name, program in _PROGRAMS.items():
            took = ran("-c", program, place.path("first.db")).processor
            if turn:
                taken[name].append(took * 1e3)
    idle = statistics.median(taken["nothing"])
    spent = {name: statistics.median(values) - idle for name, values in taken.items()}
    loop = f"a loop of asyncio and sqlite3 alone {spent['asyncio, sqlite3']:.0f} ms"
    return [
        target("open", spent["open"], note=loop),
        _slowest_help(place.count(3, 1)),
        Row(figure=FIGURE, name="import eventctx", value=spent["import"], unit="ms", limit=15),
    ]


def _slowest_help(times: int) -> Row:
    found = {}
    for words in _commands(cli):
        took = [ran("-c", EVENTCTX, *words, "--help").processor for _ in range(times)]
        found[" ".join(words)] = statistics.median(took) * 1e3
    slowest = max(found, key=found.__getitem__)
    middle = statistics.median(found.values())
    return target("help", found[slowest], note=f"{slowest}; half of {len(found)}: {middle:.0f} ms")


def _commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*before, name)
        if isinstance(command, click.Group):
            yield from _commands(command, (*before, name))
