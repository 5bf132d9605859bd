"""Replaying a stored session: checked against its digests, and as the transcript it was."""

from __future__ import annotations

import apsw

import eventctx
from eventctx.log.store import Address
from eventctx.projections.view import request_view
from eventctx.queries import requests as reading
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import drafts

FIGURE = "replay"
NAME = "replayed"


async def measure(place: Place) -> list[Row]:
    count = place.count(10_000, 2000)
    path = place.path("replay.db")
    samples = Samples()
    async with eventctx.open(path, durability="normal") as engine:
        await engine.session(NAME)
        batch = [*drafts(count)]
        for first in range(0, count, 500):
            await engine.store.append(NAME, batch[first : first + 500], first)
        store, at = engine.store, count * 3 // 4
        addresses = [Address(position) for position in range(1, at + 1)]
        raw = apsw.Connection(str(path))

        def fetch(sql: str) -> int:
            return len(raw.execute(sql).fetchall())

        for _ in range(place.count(15, 5)):
            samples.time_call("fetch", lambda: fetch("SELECT * FROM records ORDER BY pos"))
            result = await samples.time("verify", lambda: engine.verify(NAME, facts=False))
            await samples.time("facts", lambda: engine.verify(NAME))
            await samples.time("fold", lambda: reading.fold(store, NAME, request_view))
            some = f"SELECT data FROM records WHERE stream=1 AND position BETWEEN 1 AND {at}"  # noqa: S608
            samples.time_call("data", lambda: fetch(some))  # noqa: B023 - called at once
            await samples.time("bodies", lambda: store.bodies(NAME, addresses))
            lines = await samples.time("transcript", lambda: engine.transcript(NAME, at=at))
        raw.close()
    if not result.ok or len(lines) != at:
        raise RuntimeError(f"the replay went wrong: {result}")
    records = count + 1
    return [
        Row(
            figure=FIGURE,
            name=f"verify every digest, {count:,} records of 1 KB",
            value=samples.micro("verify") / records,
            unit="µs/record",
            limit=5.0,
            cpu=samples.cpu("verify", records),
            note=f"fetching the rows alone: {samples.micro('fetch') / records:.2f}",
        ),
        Row(
            figure=FIGURE,
            name="the same with the facts, which is the default",
            value=samples.micro("facts") / records,
            unit="µs/record",
            limit=6.0,
            cpu=samples.cpu("facts", records),
        ),
        Row(
            figure=FIGURE,
            name="fold to the request view",
            value=samples.micro("fold") / records,
            unit="µs/record",
            cpu=samples.cpu("fold", records),
        ),
        Row(
            figure=FIGURE,
            name=f"transcript at position {at:,}",
            value=samples.milli("transcript"),
            unit="ms",
            against="store.bodies of the same",
            floor=samples.milli("bodies"),
            cpu=samples.cpu("transcript"),
            floor_cpu=samples.cpu("bodies"),
            limit=3.0,
        ),
        Row(
            figure=FIGURE,
            name=f"transcript at position {at:,}",
            value=samples.milli("transcript"),
            unit="ms",
            against="SELECT data, nothing else",
            floor=samples.milli("data"),
            cpu=samples.cpu("transcript"),
            floor_cpu=samples.cpu("data"),
        ),
    ]
