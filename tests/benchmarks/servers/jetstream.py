"""A store on JetStream, three replicas that sync every message, against bare publishes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

import eventctx
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.record import Draft
from eventctx.log.store import NO_STREAM, EventStore
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.servers import SESSIONS, started
from tests.benchmarks.servers.postgres import SEED, appended, records_of, seed
from tests.benchmarks.servers.raw_jetstream import RawStream, Stored, stored_append
from tests.benchmarks.timing import Samples, tail
from tests.benchmarks.workload import draft, drafts, message
from tests.services.nats_server import Cluster, NatsMissing

FIGURE: Final = "jetstream"
MESSAGE, ACTIVITY = "a message of 1 KB", "a record without a body"


async def measure(place: Place) -> list[Row]:
    try:
        with started.jetstream() as cluster:
            return [
                *await _one_append(place, cluster),
                await _many_sessions(place, cluster),
                await _reading(place, cluster),
            ]
    except NatsMissing as error:
        return [missing(FIGURE, "a store on JetStream", str(error))]


async def _one_append(place: Place, cluster: Cluster) -> list[Row]:
    samples = Samples()
    name = "ONE"
    async with eventctx.open(cluster.url(name)) as engine, RawStream(cluster.servers[0]) as raw:
        context = await engine.session("context", max_tokens=10**9)
        made = {MESSAGE: lambda number: draft(message(number)), ACTIVITY: _activity}
        floors: dict[str, Stored] = {}
        for what, make in made.items():
            await engine.store.append(what, [make(0)], NO_STREAM)
            floors[what] = await stored_append(cluster.servers[0], name)
        for number in range(place.count(1000, 200)):
            for what, make in made.items():
                floor = floors[what]
                publish = partial(raw.publish, what.replace(" ", "-"), *floor)
                await samples.time(f"raw {what}", publish)
                append = partial(engine.store.append, what, [make(number)], number)
                await samples.time(what, append)
            await samples.time("context", partial(context.add_message, message(number)))
    return [
        *[_append_row(samples, what, floors) for what in made],
        Row(
            figure=FIGURE,
            name="ctx.add_message",
            value=samples.micro("context"),
            unit="µs",
            against=f"a bare publish, {MESSAGE}",
            floor=samples.micro(f"raw {MESSAGE}"),
            cpu=samples.cpu("context"),
            floor_cpu=samples.cpu(f"raw {MESSAGE}"),
        ),
    ]


def _append_row(samples: Samples, what: str, floors: Mapping[str, Stored]) -> Row:
    return Row(
        figure=FIGURE,
        name=f"store.append, {what}",
        value=samples.micro(what),
        unit="µs",
        against="a bare publish of as many bytes, the same headers",
        floor=samples.micro(f"raw {what}"),
        limit=1.5,
        cpu=samples.cpu(what),
        floor_cpu=samples.cpu(f"raw {what}"),
        note=f"{tail(samples, what)}; {len(floors[what].payload):,} bytes",
    )


def _activity(number: int) -> Draft:
    name, version, payload = encode_event(events.UsageReported(prompt=1000 + number, output=300))
    return Draft(os.urandom(16), name, version, time.time_ns(), payload)


async def _many_sessions(place: Place, cluster: Cluster) -> Row:
    samples = Samples()
    name = "MANY"
    count = SESSIONS * place.count(50, 10)
    async with eventctx.open(cluster.url(name)) as engine, RawStream(cluster.servers[0]) as raw:
        await engine.store.append("first", [draft(message(0))], NO_STREAM)
        floor = await stored_append(cluster.servers[0], name)
        for number in range(place.count(5, 2)):
            await samples.time("raw", partial(_published, raw, f"{number}", floor, count))
            work = [*drafts(count)]
            await samples.time("store", partial(appended, engine.store, f"{number}", work))
    return Row(
        figure=FIGURE,
        name=f"{SESSIONS} sessions, store.append",
        value=count / samples.median("store"),
        unit="messages/s",
        against=f"{SESSIONS} bare publishes at once",
        floor=count / samples.median("raw"),
        better="more",
        cpu=samples.cpu("store", count),
        floor_cpu=samples.cpu("raw", count),
    )


async def _published(raw: RawStream, prefix: str, floor: Stored, count: int) -> None:
    async def session(name: str) -> None:
        for _ in range(count // SESSIONS):
            await raw.publish(name, *floor)

    await asyncio.gather(*[session(f"{prefix}-{number}") for number in range(SESSIONS)])


async def _reading(place: Place, cluster: Cluster) -> Row:
    count = place.count(10_000, 2000)
    samples = Samples()
    name = "READ"
    async with eventctx.open(cluster.url(name)) as engine, RawStream(cluster.servers[0]) as raw:
        store: EventStore = engine.store
        await store.append("first", [draft(message(0))], NO_STREAM)
        floor = await stored_append(cluster.servers[0], name)
        await seed(store, count)
        await raw.fill(SEED, count, *floor)
        for _ in range(place.count(7, 3)):
            fetched = await samples.time("raw", partial(raw.read, SEED))
            read = await samples.time("store", partial(records_of, store, SEED))
            if fetched != count or read != count:
                raise RuntimeError(f"expected {count} records, read {read} and {fetched} messages")
    return Row(
        figure=FIGURE,
        name=f"reading {count:,} records of 1 KB",
        value=samples.milli("store"),
        unit="ms",
        against="direct gets of as many bytes, 1,000 messages each",
        floor=samples.milli("raw"),
        cpu=samples.cpu("store"),
        floor_cpu=samples.cpu("raw"),
        note="the store also compares with the leader, and checks every digest",
    )
