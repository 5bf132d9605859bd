"""One session, one durable append, against one bare write of 1 KB with fdatasync."""

from __future__ import annotations

from functools import partial

import eventctx
from eventctx.log.store import NO_STREAM
from tests.benchmarks.floors import BareFile
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row
from tests.benchmarks.timing import Samples, tail
from tests.benchmarks.workload import draft, message

FIGURE = "one append"


async def measure(place: Place) -> list[Row]:
    samples = Samples()
    bare = BareFile(place.path("bare"))
    rounds = place.count(3000, 500)
    async with eventctx.open(place.path("append.db")) as engine:
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
    floor = samples.micro("bare")
    return [
        Row(
            figure=FIGURE,
            name=name,
            value=samples.micro(key),
            unit="µs",
            against="write 1 KB + fdatasync",
            floor=floor,
            limit=2.0,
            cpu=samples.cpu(key),
            floor_cpu=samples.cpu("bare"),
            note=tail(samples, key),
        )
        for name, key in (("store.append", "store"), ("ctx.add_message", "context"))
    ]
