"""A cycle of one request and one tool call by the blocks of ``ctx.turn()``, without a host.

It is the cycle that ``cycle`` runs on Amplifier's kernel: a request, a model call with its usage,
the answer, a tool call, ``get_messages()`` behind it, and the result. Beside it a store appends the
records that were made, in three appends, in turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import mean, median
from typing import Final

import msgspec

import eventctx
from eventctx.log.record import Record
from eventctx.log.store import ANY, EventStore, last_position
from tests.benchmarks.cycle import (
    BEYOND,
    LENGTHS,
    PER_KB,
    REQUEST,
    TRANSACTIONS,
    TRANSCRIPT,
    WINDOW,
    Commits,
    tool_round,
)
from tests.benchmarks.hosting import tool_rounds
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import as_draft

FIGURE: Final = "turn blocks"
WARM_UP, BLOCK = 2, 4
"""Cycles of a session that are not counted, and those that are: few, as each adds messages."""

CYCLE, APPENDS = "cycle", "appends"
MODEL, ANSWER, TOOL, RESULT = "model call", "add the answer", "tool call", "add the result"


async def measure(place: Place) -> list[Row]:
    return [row for length in LENGTHS for row in await _case(place, length)]


async def _case(place: Place, length: int) -> list[Row]:
    tally = _Tally()
    async with eventctx.open(place.path("floor.db"), durability="full") as floor:
        with Commits() as commits:
            async with eventctx.open(place.path("blocks.db"), durability="full") as engine:
                for number in range(place.count(15, 3)):
                    name = f"session-{number}"
                    records = await _session(engine, name, length, commits, tally)
                    for first in range(BLOCK):
                        share = records[first::BLOCK]
                        append = partial(_append, floor.store, name, share)
                        await tally.samples.time(APPENDS, append)
    return list(_rows(length, tally))


class _Tally:
    """What the cycles took: time, KB that were returned, and transactions."""

    def __init__(self) -> None:
        self.samples = Samples()
        self.kilobytes: list[float] = []
        self.transactions: list[int] = []


async def _session(
    engine: eventctx.Engine, name: str, length: int, commits: Commits, tally: _Tally
) -> list[Record]:
    """Cycles in a session of so many messages; the records of those that count."""
    context = await engine.session(name, max_tokens=WINDOW)
    await context.set_messages(tool_rounds(length))
    async with context.turn() as turn:
        for number in range(WARM_UP):
            await _cycle(turn, context, number, _Tally())
        start = await last_position(engine.store, name) + 1
        for number in range(BLOCK):
            before = commits.count
            await _cycle(turn, context, number, tally)
            tally.transactions.append(commits.count - before)
        stop = await last_position(engine.store, name)
    records = [one async for one in engine.store.read(name, start=start, stop=stop)]
    await engine.close_session(name)
    return records


async def _cycle(
    turn: eventctx.Turn, context: eventctx.Context, number: int, tally: _Tally
) -> None:
    answer, result, tool = tool_round()
    samples = tally.samples
    with samples.step([CYCLE]):
        async with turn.iteration() as iteration:
            rows = await samples.time(REQUEST, context.get_messages_for_request)
            with samples.step([MODEL]):
                async with iteration.provider_call("a-model") as call:
                    await call.usage(100_000 + number, 5)
            await samples.time(ANSWER, partial(context.add_message, answer))
            with samples.step([TOOL]):
                async with iteration.tool_call(tool["tool_name"], tool["tool_call_id"]):
                    pass
            transcript = await samples.time(TRANSCRIPT, context.get_messages)
            await samples.time(RESULT, partial(context.add_message, result))
    tally.kilobytes.append(len(msgspec.json.encode([rows, transcript])) / 1024)


async def _append(store: EventStore, stream: str, records: Sequence[Record]) -> None:
    for first in range(TRANSACTIONS):
        await store.append(stream, [as_draft(one) for one in records[first::TRANSACTIONS]], ANY)


def _rows(length: int, tally: _Tally) -> Iterator[Row]:
    samples = tally.samples
    spent, appends = samples.cpu(CYCLE), samples.cpu(APPENDS)
    assert spent is not None
    assert appends is not None
    returned = mean(tally.kilobytes)
    of = f"{length:,} messages"
    yield Row(
        figure=FIGURE,
        name=of,
        value=spent,
        unit="µs",
        against=f"appends {appends:,.0f} + {BEYOND:.0f} + {PER_KB:g} × {returned:,.0f} KB",
        floor=appends + BEYOND + PER_KB * returned,
        limit=1.0,
        cpu=spent,
        floor_cpu=appends,
        note=f"{samples.milli(CYCLE):.3g} ms on the wall",
    )
    yield Row(
        figure=FIGURE,
        name=f"{of}: transactions",
        value=median(tally.transactions),
        limit=TRANSACTIONS,
        note=f"mean {mean(tally.transactions):.3g}",
    )
    for step in (REQUEST, MODEL, ANSWER, TOOL, TRANSCRIPT, RESULT):
        taken = samples.cpu(step)
        assert taken is not None
        name = f"{of}: of that, {step}"
        yield Row(figure=FIGURE, name=name, value=taken, unit="µs", cpu=taken)
