"""What a session's calls and questions take as its log grows to a million messages, in one file.

It is one agent's session, compacted as it goes. From one length to the next the log is filled with
the records that ``add_message`` makes, a hundred in an append, and a request; at each length the
agent goes on for some rounds, and those are measured. Questions are asked of an engine that has
not seen the session. Growth is judged by processor time, which no disk moves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from math import log
from pathlib import Path
from typing import Any, Final

import eventctx
from eventctx.log.store import ANY, last_position
from tests.benchmarks.agent import session_of
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import drafts, message, text

FIGURE: Final = "by length"
NAME: Final = "growing"
LENGTHS: Final = (1_000, 10_000, 100_000, 1_000_000)
BATCH: Final = 100
"""Messages that are filled in before the next request, which then compacts."""

ROUNDS: Final = 80
"""Rounds of four messages and a request at each length: about six of the requests compact."""

REPEATS: Final = 10
FLAT: Final = 1.5
"""More than this is growth and not noise; the tolerance is this benchmark's."""

ADD, REQUEST, COMPACTING = "add", "request", "request that compacts"
OPEN, WHY, VIEW = "open, with its request", "why, of a past request", "request_view, of a past one"
SLICE, RARE, COMMON = "transcript at record 500", "recall, a rare word", "recall, a common word"
INDEX = "recall, what is new to the index"
STEPS: Final = (ADD, REQUEST, COMPACTING, OPEN, WHY, VIEW, SLICE, RARE, COMMON, INDEX)
_FRAMES: Final = "a process's first question reads and checks the whole file of key frames"
REASONS: Final = {
    WHY: f"looks through every request's view for the message; {_FRAMES}",
    VIEW: _FRAMES,
    SLICE: _FRAMES,
    COMMON: "every message that has the word is ranked, and their number grows",
    INDEX: "all that was filled in since the last length is new",
}
"""Why what grows with the log does."""

BY_NATURE: Final = (COMMON, INDEX)
"""Steps whose work itself grows: they have no target."""


async def measure(place: Place) -> list[Row]:
    path = place.path("growing.db")
    lengths = LENGTHS[: place.count(len(LENGTHS), 2)]
    rounds = place.count(ROUNDS, 30)
    measured: list[Samples] = []
    have = 0
    for length in lengths:
        measured.append(samples := Samples())
        await _fill(path, have, length)
        async with eventctx.open(path) as engine:
            past = await _live(engine, length, rounds, samples)
            have = length + 4 * rounds
            # This engine stays open, as others of a host would: the last to close tidies up.
            await engine.close_session(NAME)
            await _asked(path, length, past, samples)
    return [row for step in STEPS for row in _rows(step, lengths, measured)]


async def _fill(path: Path, have: int, length: int) -> None:
    """Let the session grow to so many messages, compacted as it would be."""
    # What is measured comes later, so the disk need not be waited for here.
    async with eventctx.open(path, durability="normal") as engine:
        context = await session_of(engine, NAME)
        for first in range(have, length, BATCH):
            batch = [*drafts(min(BATCH, length - first), first)]
            await engine.store.append(NAME, batch, ANY)
            await context.get_messages_for_request()


async def _live(engine: eventctx.Engine, length: int, rounds: int, samples: Samples) -> int:
    """The agent goes on for some rounds; the position of one of its requests."""
    context = await session_of(engine, NAME)
    await context.get_messages_for_request()
    past = -1
    for number in range(length, length + 4 * rounds):
        await samples.time(ADD, partial(context.add_message, message(number)))
        if number % 4 == 3:
            before = context._session.aggregate.view.compactions
            with samples.step(step := [REQUEST]):
                await context.get_messages_for_request()
                if context._session.aggregate.view.compactions != before:
                    step[0] = COMPACTING
            if past < 0 and step[0] == REQUEST:
                past = await last_position(engine.store, NAME)
    return past


async def _asked(path: Path, length: int, past: int, samples: Samples) -> None:
    """Openings and questions, each by an engine that has not seen the session."""
    number = length // 2

    async def open_and_request(engine: eventctx.Engine) -> None:
        context = await session_of(engine, NAME)
        await context.get_messages_for_request()

    async with eventctx.open(path) as engine:
        await samples.time(INDEX, engine.recaller().catch_up)
    for repeat in range(REPEATS):
        rare, common = text(number + repeat).split()[:2]
        questions: dict[str, Callable[[eventctx.Engine], Awaitable[Any]]] = {
            OPEN: open_and_request,
            WHY: lambda engine: engine.why(NAME, number, position=past),
            VIEW: lambda engine: engine.request_view(NAME, position=past),
            SLICE: lambda engine: engine.transcript(NAME, at=500),
            RARE: lambda engine: engine.recall(rare.rstrip(":"), NAME),  # noqa: B023
            COMMON: lambda engine: engine.recall(common, NAME),  # noqa: B023
        }
        for step, question in questions.items():
            async with eventctx.open(path) as engine:
                await samples.time(step, partial(question, engine))


def _rows(step: str, lengths: Sequence[int], measured: Sequence[Samples]) -> Iterator[Row]:
    """A row for each length; the last one says how the step grew."""
    least, most = lengths[0], lengths[-1]
    first = measured[0]
    for length, samples in zip(lengths, measured, strict=True):
        if step not in samples.by_name:
            yield missing(FIGURE, f"{step}: {length:,} messages", "none in these rounds")
            continue
        spent, base = samples.cpu(step), first.cpu(step)
        assert spent is not None
        assert base is not None
        bound = FLAT * log(length) / log(least)
        note = f"{samples.milli(step):.3g} ms on the wall"
        if length == most:
            note += f"; {growth(spent / base, bound, step)}"
        yield Row(
            figure=FIGURE,
            name=f"{step}: {length:,} messages",
            value=spent,
            unit="µs",
            against=f"{least:,} messages" if length != least else "",
            floor=base if length != least else None,
            limit=bound if length != least and step not in BY_NATURE else None,
            cpu=spent,
            floor_cpu=base if length != least else None,
            note=note,
        )


def growth(grown: float, bound: float, step: str) -> str:
    """How a step grew, in a word, or why by more than ``bound``, which a logarithm gives."""
    if grown <= FLAT:
        return "flat"
    return "logarithmic" if grown <= bound else REASONS.get(step, "grows: not explained")
