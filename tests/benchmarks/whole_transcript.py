"""The whole transcript for a host that asks after every tool, beside the decoding of its rows.

The rows are new dicts for each caller, so decoding them is the floor. Measured is processor time:
of the calling thread, which does all the work of an answer from memory (the store's thread may
still be ending its work on the append before), and of all threads for the first answer, which the
store reads.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import eventctx
from eventctx.messages.encoding import decode_bodies, encode_message
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, of_processor
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import drafts, message

FIGURE = "get_messages"
PER_KILOBYTE = 4.0
"""Microseconds of processor time, at most."""

SESSIONS = 5
"""Sessions of each length."""

ASKED = 10
"""Messages that a host adds to each, asking for all of them in between."""


async def measure(place: Place) -> list[Row]:
    most = place.count(10_000, 1_000)
    lengths = [length for length in (20, 100, 1_000, 10_000) if length <= most]
    return [of_processor(row) for length in lengths for row in await _of(place, length)]


async def _of(place: Place, length: int) -> list[Row]:
    samples = Samples()
    kilobytes: list[float] = []
    besides: list[float] = []
    for _ in range(place.count(SESSIONS, 2)):
        async with _session(place, length - ASKED) as context:
            await context.get_token_count()  # loads the session, which any host needs anyway
            await _timed(samples, "first", context.get_messages, time.process_time_ns)
            for number in range(length - ASKED, length):
                await context.add_message(message(number))
                # A host's later call. Behind an append the look whether others wrote costs more.
                await _timed(samples, "behind an add", context.get_messages)
                await _timed(samples, "again", context.get_messages)
                bodies = [encode_message(row) for row in await context.get_messages()]
                samples.add("floor", _decoding(bodies))
            kilobytes.append(sum(map(len, bodies)) / 1024)
            besides.append((context._session.lines.bytes_held - sum(map(len, bodies))) / length)
    size = median(kilobytes)
    floor = samples.micro("floor")
    name = f"{length:,} messages, "

    def row(what: str, step: str, limit: float | None = None, note: str = "") -> Row:
        return Row(
            figure=FIGURE, name=name + what, value=samples.micro(step) / size, unit="µs/KB",
            limit=limit, note=note,
        )  # fmt: skip

    return [
        row("behind an add", "behind an add", PER_KILOBYTE, f"{size:,.0f} KB"),
        row("again", "again", PER_KILOBYTE, f"holds {median(besides):.0f} B a message besides"),
        row("of that, decoding", "floor"),
        Row(
            figure=FIGURE, name=name + "beyond decoding, behind an add", unit="µs",
            value=samples.micro("behind an add") - floor,
        ),
        row("the first time, from the store", "first"),
    ]  # fmt: skip


@asynccontextmanager
async def _session(place: Place, length: int) -> AsyncIterator[eventctx.Context]:
    async with eventctx.open(place.path("whole.db")) as engine:
        context = await engine.session("agent", max_tokens=10**9)
        batch = [*drafts(length)]
        for first in range(0, length, 500):
            await engine.store.append("agent", batch[first : first + 500], first)
        yield context


async def _timed(
    samples: Samples,
    name: str,
    work: Callable[[], Awaitable[Any]],
    clock: Callable[[], int] = time.thread_time_ns,
) -> None:
    began = clock()
    rows = await work()
    samples.add(name, (clock() - began) / 1e9)
    del rows


def _decoding(bodies: list[bytes]) -> float:
    began = time.thread_time_ns()
    rows = decode_bodies(bodies)
    seconds = (time.thread_time_ns() - began) / 1e9
    del rows
    return seconds
