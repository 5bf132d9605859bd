"""What a turn takes on each store, beside SQLite's file: on the wall, and in processor time.

Each store has one session, and the sessions take turns: some cycles of a request, a tool call and
what they add, then it is the next store's turn. So all of them see the same machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple

import eventctx
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.scale.load import new_session, step_messages
from tests.benchmarks.servers import started
from tests.benchmarks.timing import Samples, tail
from tests.services.nats_server import NatsMissing
from tests.services.postgres_binaries import PostgresMissing

FIGURE: Final = "a turn"
SQLITE: Final = "sqlite"
BLOCK: Final = 10
"""Cycles of a store before it is the next one's turn."""

ADD, REQUEST, COMPACTING = "add_message", "a request", "a request that compacts"
REST, CYCLE = "get_messages()", "a whole cycle"


class Subject(NamedTuple):
    """A store, its session, and what was measured of it."""

    name: str
    context: eventctx.Context
    pids: Sequence[int]
    samples: Samples
    servers: list[float]
    """Seconds of the servers' processors for a cycle, by block."""


async def measure(place: Place) -> list[Row]:
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        subjects: list[Subject] = []
        for name, url, pids in _stores(stack, rows):
            engine = await stack.enter_async_context(eventctx.open(url))
            context = await new_session(engine, f"turns-{time.time_ns()}")
            subjects.append(Subject(name, context, pids, Samples(), []))
        for number in range(place.count(30, 6)):
            for subject in subjects:
                await _block(subject, number)
        return [*rows, *_rows(subjects)]


def _stores(stack: AsyncExitStack, rows: list[Row]) -> Iterator[tuple[str, str, Sequence[int]]]:
    """Name, URL and server processes of each store; a row for each that there is none of."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="eventctx-turns-"))
    yield SQLITE, str(Path(folder, "turns.db")), []
    try:
        server = stack.enter_context(started.postgres())
        yield "postgresql", server.url(), started.pids_of(server)
        primary = stack.enter_context(started.quorum())
        yield "postgresql, quorum", primary.url(durability="replicated"), started.pids_of(primary)
    except PostgresMissing as error:
        rows.append(missing(FIGURE, "postgresql", str(error)))
    try:
        cluster = stack.enter_context(started.jetstream())
        yield "jetstream, 3 replicas", cluster.url(), started.pids_of(cluster)
    except NatsMissing as error:
        rows.append(missing(FIGURE, "jetstream", str(error)))


async def _block(subject: Subject, block: int) -> None:
    """Some cycles in a turn of their own; those of the first block are not counted."""
    context, step = subject.context, subject.samples.step
    spent = started.processor_seconds(subject.pids)
    held = 0
    async with context.turn() as turn:
        await context.add_message({"role": "user", "content": f"block {block}"})
        for cycle in range(BLOCK):
            answer, call, result = step_messages(block * BLOCK + cycle)
            with step([CYCLE]):
                async with turn.iteration() as iteration:
                    with step(what := [REQUEST]):
                        rows = await context.get_messages_for_request()
                        if len(rows) < held:
                            what[0] = COMPACTING
                    held = len(rows)
                    async with iteration.provider_call("a-model") as model:
                        await model.usage(300 * held, 300, cache_read=200 * held)
                    with step([ADD]):
                        await context.add_message(answer)
                    async with iteration.tool_call("read", call):
                        pass
                    with step([REST]):
                        await context.get_messages()
                    with step([ADD]):
                        await context.add_message(result)
    if block:
        subject.servers.append((started.processor_seconds(subject.pids) - spent) / BLOCK)
    else:
        subject.samples.clear()


def _rows(subjects: Sequence[Subject]) -> Iterator[Row]:
    floor = subjects[0]
    for step in (ADD, REQUEST, COMPACTING, REST, CYCLE):
        for subject in subjects:
            with suppress(KeyError):  # in a quick run nothing may have compacted
                yield _row(step, subject, floor)


def _row(step: str, subject: Subject, floor: Subject) -> Row:
    servers = ""
    if step == CYCLE and subject.pids:
        mean = sum(subject.servers) / len(subject.servers)
        servers = f"; processor time of its servers {mean * 1e6:,.0f} µs"
    return Row(
        figure=FIGURE,
        name=f"{step}: {subject.name}",
        value=subject.samples.micro(step),
        unit="µs",
        against="" if subject is floor else SQLITE,
        floor=None if subject is floor else floor.samples.micro(step),
        cpu=subject.samples.cpu(step),
        floor_cpu=None if subject is floor else floor.samples.cpu(step),
        note=tail(subject.samples, step) + servers,
    )
