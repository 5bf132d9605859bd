"""Ten thousand sessions open in one process: whether the last is as fast as the first, and memory.

A hundred sessions at a time are opened, get their messages at once, as those of a busy host would,
and make a request. All stay open. A process of its own does it, since its memory is measured.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import eventctx
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import Message, message

FIGURE: Final = "open sessions"
SESSIONS: Final = 10_000
TOGETHER: Final = 100
MESSAGES: Final = 10
"""Of each session; about 10 KB of JSON."""

TENTHS: Final = 10
FLAT: Final = 1.2
OPEN, ADD, REQUEST = "open", "add", "request"


async def measure(place: Place) -> list[Row]:
    count = place.count(SESSIONS, 1_000)
    program = (sys.executable, "-m", __name__, str(place.path("sessions.db")), str(count))
    ran = await asyncio.to_thread(
        partial(subprocess.run, program, stdout=subprocess.PIPE, check=True, text=True)
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    steps = {
        "add_message, a hundred sessions at once": (ADD, TOGETHER * MESSAGES),
        "opening a session": (OPEN, TOGETHER),
        "a request": (REQUEST, TOGETHER),
    }
    rows = [
        _row(name, count, each, found["wall"][step], found["processor"][step])
        for name, (step, each) in steps.items()
    ]
    return [*rows, _memory(count, found["memory"])]


def _row(
    name: str, count: int, each: int, wall: Sequence[float], processor: Sequence[float]
) -> Row:
    """The last tenth over the first, in processor time, which no disk moves.

    ``each`` is how many of what is named a step holds.
    """
    part = len(wall) // TENTHS
    first, last, cpu_first, cpu_last = (
        median(taken) / each * 1e6
        for taken in (wall[:part], wall[-part:], processor[:part], processor[-part:])
    )
    return Row(
        figure=FIGURE,
        name=f"{name}: the last {count // TENTHS:,} of {count:,}",
        value=cpu_last,
        unit="µs",
        against=f"the first {count // TENTHS:,}",
        floor=cpu_first,
        limit=FLAT,
        cpu=cpu_last,
        floor_cpu=cpu_first,
        note=f"{1e6 / last:,.0f} a second on the wall; the first {1e6 / first:,.0f}",
    )


def _memory(count: int, resident: Sequence[int]) -> Row:
    """What a session takes; ``resident`` has the process's KB before each tenth, and at the end."""
    part = count // TENTHS
    return Row(
        figure=FIGURE,
        name=f"memory of an open session, {count:,} of them",
        value=(resident[-1] - resident[0]) / count,
        unit="KB",
        note=f"each has {MESSAGES} messages of 1 KB; "
        f"of the last {part:,} {(resident[-1] - resident[-2]) / part:.3g} KB",
    )


async def _run(path: Path, count: int) -> dict[str, Any]:
    samples = Samples()
    memory: list[int] = []
    held: list[eventctx.Context] = []
    async with eventctx.open(path) as engine:
        for first in range(0, count, TOGETHER):
            if first % (count // TENTHS) == 0:
                memory.append(_resident())
            made = [message(number) for number in range(first, first + MESSAGES)]
            names = [f"session-{number}" for number in range(first, first + TOGETHER)]
            fresh = await samples.time(OPEN, partial(_all, map(engine.session, names)))
            await samples.time(ADD, partial(_all, [_talk(one, made) for one in fresh]))
            requests = [one.get_messages_for_request() for one in fresh]
            await samples.time(REQUEST, partial(_all, requests))
            held += fresh
        memory.append(_resident())
    return {"wall": samples.by_name, "processor": samples.processor, "memory": memory}


async def _all(work: Iterable[Awaitable[Any]]) -> list[Any]:
    return await asyncio.gather(*work)


async def _talk(context: eventctx.Context, made: Sequence[Message]) -> None:
    for one in made:
        await context.add_message(one)


def _resident() -> int:
    """Memory of this process, in KB, without what a collection frees."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run(Path(sys.argv[1]), int(sys.argv[2])))))
