"""A store on PostgreSQL against bare statements of one driver: on one server, and in a quorum."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import eventctx
from eventctx.log.record import Draft
from eventctx.log.store import NO_STREAM, EventStore
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.servers import SESSIONS, started
from tests.benchmarks.servers.raw_postgres import RawRecords, Rows
from tests.benchmarks.timing import Samples, tail
from tests.benchmarks.workload import draft, drafts, message
from tests.services.postgres_binaries import PostgresMissing
from tests.services.postgres_server import Server

FIGURE: Final = "postgresql"
SCHEMA: Final = "eventctx"
BATCH: Final = 100
"""Rows of a raw statement."""

SEED: Final = "seed"


async def measure(place: Place) -> list[Row]:
    try:
        with started.postgres() as server:
            found = [
                *await _one_append(place, server),
                *await _many_sessions(place, server),
                await _reading(place, server),
            ]
        with started.quorum() as primary:
            found.append(await _quorum(place, primary))
    except PostgresMissing as error:
        return [missing(FIGURE, "a store on PostgreSQL", str(error))]
    return found


# -- one append ------------------------------------------------------------------------------------


async def _one_append(place: Place, server: Server) -> list[Row]:
    rounds = place.count(2000, 300)
    samples = Samples()
    url = server.url(server.new_database())
    async with eventctx.open(url) as engine:
        store = engine.store
        await seed(store, rounds)
        raw = RawRecords(url, SCHEMA, "raw")
        context = await engine.session("context", max_tokens=10**9)
        head = -1
        for number, row in enumerate(raw.rows()[:rounds]):
            samples.time_call("raw", partial(raw.insert, row))
            prepared = draft(message(number))
            expected = NO_STREAM if head < 0 else head
            await samples.time("store", partial(store.append, "one", [prepared], expected))
            head += 1
            made = message(number)
            await samples.time("context", partial(context.add_message, made))
        raw.close()
    return [
        Row(
            figure=FIGURE,
            name=name,
            value=samples.micro(key),
            unit="µs",
            against="prepared INSERT and its commit",
            floor=samples.micro("raw"),
            limit=1.5 if key == "store" else None,
            cpu=samples.cpu(key),
            floor_cpu=samples.cpu("raw"),
            note=f"{tail(samples, key)}; the insert: {tail(samples, 'raw')}",
        )
        for name, key in (("store.append", "store"), ("ctx.add_message", "context"))
    ]


async def seed(store: EventStore, count: int) -> None:
    """A stream of so many messages, in large appends."""
    batch = [*drafts(count)]
    for first in range(0, count, 500):
        expected = first - 1 if first else NO_STREAM
        await store.append(SEED, batch[first : first + 500], expected)


# -- a hundred sessions ----------------------------------------------------------------------------


async def _many_sessions(place: Place, server: Server) -> list[Row]:
    each = place.count(100, 20)
    samples = Samples()
    url = server.url(server.new_database())
    count = SESSIONS * each
    async with eventctx.open(url) as engine:
        await seed(engine.store, count)
        raw = RawRecords(url, SCHEMA, "raw")
        rows = raw.rows()
        for number in range(place.count(5, 2)):
            raw.clear()
            samples.time_call("raw", partial(_batches, raw, rows))
            work = [*drafts(count)]
            await samples.time("store", partial(appended, engine.store, f"{number}", work))
        raw.close()
    return [
        Row(
            figure=FIGURE,
            name=f"{SESSIONS} sessions, store.append",
            value=count / samples.median("store"),
            unit="messages/s",
            against=f"raw unnest, {BATCH} rows a commit",
            floor=count / samples.median("raw"),
            limit=0.5,
            better="more",
            cpu=samples.cpu("store", count),
            floor_cpu=samples.cpu("raw", count),
        )
    ]


def _batches(raw: RawRecords, rows: Rows) -> None:
    for first in range(0, len(rows), BATCH):
        raw.insert_batch(rows[first : first + BATCH])


async def appended(store: EventStore, prefix: str, work: Sequence[Draft]) -> None:
    """Append a share of the work to each of a hundred sessions, which all run at once."""
    each = len(work) // SESSIONS

    async def session(name: str, own: Sequence[Draft]) -> None:
        for head, one in enumerate(own, -1):
            await store.append(name, (one,), head if head >= 0 else NO_STREAM)

    await asyncio.gather(
        *[session(f"{prefix}-{i}", work[i * each : (i + 1) * each]) for i in range(SESSIONS)]
    )


# -- reading ---------------------------------------------------------------------------------------


async def _reading(place: Place, server: Server) -> Row:
    count = place.count(10_000, 2000)
    samples = Samples()
    url = server.url(server.new_database())
    async with eventctx.open(url) as engine:
        store = engine.store
        await seed(store, count)
        raw = RawRecords(url, SCHEMA, "raw")
        stream = raw.stream_of(SEED)
        for _ in range(place.count(15, 5)):
            fetched = samples.time_call("raw", partial(raw.read, stream))
            read = await samples.time("store", partial(records_of, store, SEED))
            if fetched != count or read != count:
                raise RuntimeError(f"expected {count} records, read {read} and {fetched} rows")
        raw.close()
    return Row(
        figure=FIGURE,
        name=f"reading {count:,} records of 1 KB",
        value=samples.milli("store"),
        unit="ms",
        against="raw SELECT of the same rows",
        floor=samples.milli("raw"),
        limit=2.0,
        cpu=samples.cpu("store"),
        floor_cpu=samples.cpu("raw"),
    )


async def records_of(store: EventStore, stream: str) -> int:
    """Read a whole stream with its bodies; how many records it has."""
    return len([record async for record in store.read(stream)])


# -- a quorum --------------------------------------------------------------------------------------


async def _quorum(place: Place, primary: Server) -> Row:
    rounds = place.count(2000, 300)
    samples = Samples()
    database = primary.new_database()
    urls = {
        "quorum": primary.url(database, durability="replicated"),
        "local": primary.url(database, options="-csynchronous_commit=local"),
    }
    async with eventctx.open(urls["quorum"]) as quorum, eventctx.open(urls["local"]) as local:
        stores = {"quorum": quorum.store, "local": local.store}
        for number in range(rounds):
            for name, store in stores.items():
                expected = NO_STREAM if not number else number - 1
                prepared = draft(message(number))
                await samples.time(name, partial(store.append, name, [prepared], expected))
    return Row(
        figure=FIGURE,
        name=f"store.append, {started.QUORUM}",
        value=samples.micro("quorum"),
        unit="µs",
        against="the same primary, synchronous_commit=local",
        floor=samples.micro("local"),
        limit=2.0,
        cpu=samples.cpu("quorum"),
        floor_cpu=samples.cpu("local"),
        note=tail(samples, "quorum"),
    )
