"""Preparing the next request of a session at hand, whatever the length of its log."""

from __future__ import annotations

from functools import partial

import msgspec

import eventctx
from eventctx.log.store import NO_STREAM
from tests.benchmarks.agent import build, session_of
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import draft, drafts, message

FIGURE = "next request"
PER_KILOBYTE = 4.0
FIXED = 100.0
COMPACTING = 2.0
"""A request that compacts may take this often what another may, its policy's own time included."""


async def measure(place: Place) -> list[Row]:
    longest, most = place.count(100_000, 1000), place.count(10_000, 1000)
    lengths = (100, 1000, 10_000, 100_000)
    return [
        *[row for n in lengths if n <= longest for row in await compacted(place, n)],
        *[row for n in lengths if n <= most for row in await whole(place, n)],
    ]


async def compacted(place: Place, length: int) -> list[Row]:
    """A session compacted as it grew. Requests that compact get a row of their own."""
    path = place.path("compacted.db")
    await build(path, "agent", length)
    async with eventctx.open(path) as engine:
        context = await session_of(engine, "agent")
        return await _rounds(engine, context, f"{length:,} messages, compacted", length, 150)


async def whole(place: Place, length: int) -> list[Row]:
    """A session whose every message is in view."""
    async with eventctx.open(place.path("whole.db")) as engine:
        context = await engine.session("agent", max_tokens=10**9)
        batch = [*drafts(length)]
        for first in range(0, length, 500):
            await engine.store.append("agent", batch[first : first + 500], first)
        repeats = 60 if length <= 1000 else 20
        return await _rounds(engine, context, f"{length:,} messages, all in view", length, repeats)


async def _rounds(
    engine: eventctx.Engine, context: eventctx.Context, name: str, length: int, repeats: int
) -> list[Row]:
    samples = Samples()
    sizes: list[int] = []
    head = -1
    await context.get_messages_for_request()
    for number in range(length, length + 4 * repeats):
        await context.add_message(message(number))
        expected = head if head >= 0 else NO_STREAM
        append = partial(engine.store.append, "beside", [draft(message(number))], expected)
        await samples.time("append", append)
        head += 1
        if number % 4 == 3:
            before = context._session.aggregate.view.compactions
            with samples.step(what := ["request"]):
                messages = await context.get_messages_for_request()
                if context._session.aggregate.view.compactions != before:
                    # Rare, and dearer: in one median with the others it would not show at all.
                    what[0] = "compacting"
            if what[0] == "compacting":
                continue
            sizes.append(len(msgspec.json.encode(messages)))
    kilobytes = sum(sizes) / len(sizes) / 1024
    append_time = samples.micro("append")
    allowed = append_time + FIXED + PER_KILOBYTE * kilobytes
    against = f"append {append_time:.0f} + {FIXED:.0f} + {PER_KILOBYTE:g} × {kilobytes:.0f} KB"
    found = [_row(name, samples, "request", against, allowed, "")]
    taken = samples.by_name.get("compacting")
    if taken:
        note = f"{len(taken)} requests"
        found.append(_row(f"{name}: that compact", samples, "compacting", against, allowed, note))
    return found


def _row(name: str, samples: Samples, step: str, against: str, allowed: float, note: str) -> Row:
    return Row(
        figure=FIGURE,
        name=name,
        value=samples.micro(step),
        unit="µs",
        against=against,
        floor=allowed,
        limit=COMPACTING if step == "compacting" else 1.0,
        note=note,
        cpu=samples.cpu(step),
    )
