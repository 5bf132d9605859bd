"""One session, one durable append, against one bare write of 1 KB with fdatasync."""

from __future__ import annotations

import statistics
from functools import partial

import eventctx
from eventctx.log.store import NO_STREAM
from tests.benchmarks.floors import BareFile, RawTable, schema, stored_rows
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, of_processor
from tests.benchmarks.timing import Samples, tail
from tests.benchmarks.workload import draft, message

FIGURE = "one append"
BATCH = 100
INSERTS = 12.0
"""An added message may take this many raw inserts' processor time: 120 µs where one takes 10."""


async def measure(place: Place) -> list[Row]:
    samples = Samples()
    bare = BareFile(place.path("bare"))
    rounds = place.count(3000, 500)
    path = place.path("append.db")
    async with eventctx.open(path) as engine:
        context = await engine.session("context", max_tokens=10**9)
        store, head = engine.store, -1
        for number in range(rounds):
            samples.time_call("bare", bare.write)
            prepared = draft(message(number))
            expected = NO_STREAM if head < 0 else head
            await samples.time("store", partial(store.append, "store", [prepared], expected))
            head += 1
            made = message(number)
            await samples.time("context", partial(context.add_message, made))
    bare.close()
    table = RawTable(place.path("raw.db"), schema(path))
    rows = stored_rows(path)
    for first in range(0, len(rows) - BATCH, BATCH):
        samples.time_call("raw", partial(table.insert, rows[first : first + BATCH]))
    table.close()
    floor = samples.micro("bare")
    return [
        Row(
            figure=FIGURE,
            name=name,
            value=samples.micro(key),
            unit="µs",
            against="write 1 KB + fdatasync",
            floor=floor,
            limit=limit,
            cpu=samples.cpu(key),
            floor_cpu=samples.cpu("bare"),
            note=tail(samples, key),
        )
        for name, key, limit in (
            ("store.append", "store", 2.0),
            ("ctx.add_message", "context", 1.7),
        )
    ] + [_beside_the_write(samples)]


def _beside_the_write(samples: Samples) -> Row:
    """What an added message takes besides the write, by what this machine takes for an insert."""
    whole, write, insert = (
        statistics.median(samples.processor[name]) * 1e6 for name in ("context", "bare", "raw")
    )
    return of_processor(
        Row(
            figure=FIGURE,
            name="ctx.add_message: processor time beside the write",
            value=whole - write,
            unit="µs",
            against=f"a raw insert, {BATCH} rows a commit",
            floor=insert / BATCH,
            limit=INSERTS,
        )
    )
