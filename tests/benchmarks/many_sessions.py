"""A hundred sessions at once: what group commit gains, and what it costs over raw inserts."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from pathlib import Path

import eventctx
from eventctx.log.record import Draft
from eventctx.log.store import NO_STREAM
from tests.benchmarks.floors import AioTable, RawTable, Rows, schema, stored_rows
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import now
from tests.benchmarks.workload import Message, draft, message

FIGURE = "100 sessions"
SESSIONS = 100
BATCH = 100


async def measure(place: Place) -> list[Row]:
    each, rounds = place.count(100, 20), place.count(5, 2)
    work = [message(number) for number in range(SESSIONS * each)]
    rates: dict[str, list[float]] = {}
    path = place.path("store.db")
    for _ in range(rounds):
        path = place.path("store.db")
        took = await through_store(path, [draft(one) for one in work], each)
        rates.setdefault("store", []).append(len(work) / took)
        took = await through_contexts(place.path("contexts.db"), work, each)
        rates.setdefault("context", []).append(len(work) / took)
        tables, rows = schema(path), stored_rows(path)
        rates.setdefault("raw", []).append(len(rows) / raw(place.path("raw.db"), tables, rows))
        try:
            sample = rows[: len(rows) // 5]
            took = await through_aiosqlite(place.path("aio.db"), tables, sample)
            rates.setdefault("aiosqlite", []).append(len(sample) / took)
        except ImportError:
            pass
    middle = {name: statistics.median(values) for name, values in rates.items()}
    found: list[Row] = []
    for name, key in (("store.append", "store"), ("ctx.add_message", "context")):
        against = "aiosqlite, a commit each"
        if "aiosqlite" in middle:
            found.append(_row(f"{name} / aiosqlite", middle, key, against, "aiosqlite", 5.0))
        else:
            found.append(missing(FIGURE, f"{name} / aiosqlite", "aiosqlite: not installed"))
        against = "raw inserts, batches of 100"
        found.append(_row(f"{name} / raw", middle, key, against, "raw", 0.6))
    return found


def _row(
    name: str, rates: dict[str, float], key: str, against: str, floor: str, limit: float
) -> Row:
    return Row(
        figure=FIGURE,
        name=name,
        value=rates[key],
        unit="messages/s",
        against=against,
        floor=rates[floor],
        limit=limit,
        better="more",
    )


async def through_store(path: Path, work: Sequence[Draft], each: int) -> float:
    async with eventctx.open(path) as engine:
        store = engine.store

        async def session(name: str, own: Sequence[Draft]) -> None:
            for head, one in enumerate(own, -1):
                await store.append(name, (one,), head if head >= 0 else NO_STREAM)

        began = now()
        await asyncio.gather(
            *[session(f"s{i}", work[i * each : (i + 1) * each]) for i in range(SESSIONS)]
        )
        return now() - began


async def through_contexts(path: Path, work: Sequence[Message], each: int) -> float:
    async with eventctx.open(path) as engine:
        contexts = [await engine.session(f"s{i}", max_tokens=10**9) for i in range(SESSIONS)]

        async def session(index: int) -> None:
            for one in work[index * each : (index + 1) * each]:
                await contexts[index].add_message(one)

        began = now()
        await asyncio.gather(*[session(index) for index in range(SESSIONS)])
        return now() - began


def raw(path: Path, tables: Sequence[str], rows: Rows) -> float:
    table = RawTable(path, tables)
    began = now()
    for first in range(0, len(rows), BATCH):
        table.insert(rows[first : first + BATCH])
    took = now() - began
    table.close()
    return took


async def through_aiosqlite(path: Path, tables: Sequence[str], rows: Rows) -> float:
    table = await AioTable.open(path, tables)
    each = len(rows) // SESSIONS

    async def session(index: int) -> None:
        for row in rows[index * each : (index + 1) * each]:
            await table.insert(row)

    began = now()
    await asyncio.gather(*[session(index) for index in range(SESSIONS)])
    took = now() - began
    await table.close()
    return took
