"""Preparing the next request of a session at hand, whatever the length of its log."""

from __future__ import annotations

from functools import partial

import msgspec

import eventctx
from eventctx.log.store import NO_STREAM
from tests.benchmarks.agent import TimedPolicy, build, session_of
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import draft, drafts, message

FIGURE = "next request"
PER_KILOBYTE = 4.0
FIXED = 100.0

COMPACTING = 2.0
"""A request that compacts may take so many times what another may, beyond its policy's own time."""


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
        policy = TimedPolicy()
        context = await session_of(engine, "agent", policy)
        name = f"{length:,} messages, compacted"
        return await _rounds(engine, context, name, length, 150, policy)


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
    engine: eventctx.Engine,
    context: eventctx.Context,
    name: str,
    length: int,
    repeats: int,
    policy: TimedPolicy | None = None,
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
            own = (policy.spent, policy.processor) if policy is not None else (0.0, 0.0)
            with samples.step(what := ["request"]):
                messages = await context.get_messages_for_request()
                if context._session.aggregate.view.compactions != before:
                    # Rare, and dearer: in one median with the others it would not show at all.
                    what[0] = "compacting"
            if what[0] == "compacting":
                if policy is not None:
                    samples.add("policy", policy.spent - own[0], policy.processor - own[1])
                continue
            sizes.append(len(msgspec.json.encode(messages)))
    kilobytes = sum(sizes) / len(sizes) / 1024
    append_time = samples.micro("append")
    allowed = append_time + FIXED + PER_KILOBYTE * kilobytes
    against = f"append {append_time:.0f} + {FIXED:.0f} + {PER_KILOBYTE:g} × {kilobytes:.0f} KB"
    found = [_row(name, samples, "request", against, allowed)]
    if "policy" in samples.by_name:
        found.append(_beyond_policy(name, samples, against, allowed))
    return found


def _beyond_policy(name: str, samples: Samples, against: str, allowed: float) -> Row:
    """Requests that compact: what they take besides their policy."""
    beyond = Samples()
    times = zip(samples.by_name["compacting"], samples.by_name["policy"], strict=True)
    spent = zip(samples.processor["compacting"], samples.processor["policy"], strict=True)
    for (whole, own), (processor, of_policy) in zip(times, spent, strict=True):
        beyond.add("compacting", whole - own, processor - of_policy)
    count, policy = len(beyond.by_name["compacting"]), samples.micro("policy")
    note = f"{count} requests; their policy took {policy:,.0f} µs more"
    row = _row(f"{name}: that compact", beyond, "compacting", against, allowed)
    return msgspec.structs.replace(row, limit=COMPACTING, note=note)


def _row(name: str, samples: Samples, step: str, against: str, allowed: float) -> Row:
    return Row(
        figure=FIGURE,
        name=name,
        value=samples.micro(step),
        unit="µs",
        against=against,
        floor=allowed,
        limit=1.0,
        cpu=samples.cpu(step),
    )
