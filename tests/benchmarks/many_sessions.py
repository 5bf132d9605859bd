"""A hundred sessions at once: what group commit gains, and what it costs over raw inserts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import eventctx
from eventctx.log.record import Draft
from eventctx.log.store import NO_STREAM
from tests.benchmarks.floors import AioTable, RawTable, Rows, schema, stored_rows
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import Message, draft, message

FIGURE = "100 sessions"
SESSIONS = 100
BATCH = 100


async def measure(place: Place) -> list[Row]:
    each, rounds = place.count(100, 20), place.count(5, 2)
    work = [message(number) for number in range(SESSIONS * each)]
    samples = Samples()
    counts = dict.fromkeys(("store", "context", "raw"), len(work)) | {"aiosqlite": len(work) // 5}
    for _ in range(rounds):
        path = place.path("store.db")
        await through_store(path, [draft(one) for one in work], each, samples)
        await through_contexts(place.path("contexts.db"), work, each, samples)
        tables, rows = schema(path), stored_rows(path)
        raw(place.path("raw.db"), tables, rows, samples)
        with suppress(ImportError):
            sample = rows[: counts["aiosqlite"]]
            await through_aiosqlite(place.path("aio.db"), tables, sample, samples)
    middle = {name: Rate.of(samples, name, counts[name]) for name in samples.by_name}
    found: list[Row] = []
    for name, key, commits, batches in (
        ("store.append", "store", 5.0, 0.6),
        ("ctx.add_message", "context", 8.0, 0.3),
    ):
        against = "aiosqlite, a commit each"
        if "aiosqlite" in middle:
            found.append(_row(f"{name} / aiosqlite", middle, key, against, "aiosqlite", commits))
        else:
            found.append(missing(FIGURE, f"{name} / aiosqlite", "aiosqlite: not installed"))
        against = "raw inserts, batches of 100"
        found.append(_row(f"{name} / raw", middle, key, against, "raw", batches))
    return found


class Rate(NamedTuple):
    """Messages a second, and the microseconds of processor time of one."""

    rate: float
    cpu: float | None

    @classmethod
    def of(cls, samples: Samples, name: str, count: int) -> Rate:
        """The rate of a step that writes ``count`` messages."""
        return cls(count / samples.median(name), samples.cpu(name, count))


def _row(
    name: str, rates: dict[str, Rate], key: str, against: str, floor: str, limit: float
) -> Row:
    return Row(
        figure=FIGURE,
        name=name,
        value=rates[key].rate,
        unit="messages/s",
        against=against,
        floor=rates[floor].rate,
        limit=limit,
        better="more",
        cpu=rates[key].cpu,
        floor_cpu=rates[floor].cpu,
    )


async def through_store(path: Path, work: Sequence[Draft], each: int, samples: Samples) -> None:
    async with eventctx.open(path) as engine:
        store = engine.store

        async def session(name: str, own: Sequence[Draft]) -> None:
            for head, one in enumerate(own, -1):
                await store.append(name, (one,), head if head >= 0 else NO_STREAM)

        with samples.step(["store"]):
            await asyncio.gather(
                *[session(f"s{i}", work[i * each : (i + 1) * each]) for i in range(SESSIONS)]
            )


async def through_contexts(
    path: Path, work: Sequence[Message], each: int, samples: Samples
) -> None:
    async with eventctx.open(path) as engine:
        contexts = [await engine.session(f"s{i}", max_tokens=10**9) for i in range(SESSIONS)]

        async def session(index: int) -> None:
            for one in work[index * each : (index + 1) * each]:
                await contexts[index].add_message(one)

        with samples.step(["context"]):
            await asyncio.gather(*[session(index) for index in range(SESSIONS)])


def raw(path: Path, tables: Sequence[str], rows: Rows, samples: Samples) -> None:
    table = RawTable(path, tables)
    with samples.step(["raw"]):
        for first in range(0, len(rows), BATCH):
            table.insert(rows[first : first + BATCH])
    table.close()


async def through_aiosqlite(
    path: Path, tables: Sequence[str], rows: Rows, samples: Samples
) -> None:
    table = await AioTable.open(path, tables)
    each = len(rows) // SESSIONS

    async def session(index: int) -> None:
        for row in rows[index * each : (index + 1) * each]:
            await table.insert(row)

    with samples.step(["aiosqlite"]):
        await asyncio.gather(*[session(index) for index in range(SESSIONS)])
    await table.close()
