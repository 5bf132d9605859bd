"""The cost of an append as a session grows from nothing, all of it in view."""

from __future__ import annotations

import time

import eventctx
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import message

FIGURE = "growth"
FLAT = 1.2
"""More than this between the first and the last tenth is growth and not noise."""


async def measure(place: Place) -> list[Row]:
    count = place.count(100_000, 5000)
    tenth = count // 10
    samples = Samples()
    processor: list[float] = []
    async with eventctx.open(place.path("growth.db")) as engine:
        context = await engine.session("growing", max_tokens=10**9)
        for part in range(10):
            # The messages are made before the clocks start.
            made = [message(number) for number in range(part * tenth, (part + 1) * tenth)]
            began = time.process_time()
            for one in made:
                await samples.time(str(part), lambda: context.add_message(one))  # noqa: B023
            processor.append((time.process_time() - began) / tenth * 1e6)
    against = f"first {tenth:,}"
    return [
        Row(
            figure=FIGURE,
            name=f"add_message, p50 of the last {tenth:,} of {count:,}",
            value=samples.micro("9"),
            unit="µs",
            against=against,
            floor=samples.micro("0"),
            limit=FLAT,
            cpu=samples.cpu("9"),
            floor_cpu=samples.cpu("0"),
            note="p50 by tenth: " + " ".join(f"{samples.micro(str(i)):.0f}" for i in range(10)),
        ),
        Row(
            figure=FIGURE,
            name="the same in processor time, mean",
            value=processor[-1],
            unit="µs",
            against=against,
            floor=processor[0],
            limit=FLAT,
            cpu=processor[-1],
            floor_cpu=processor[0],
            note="by tenth: " + " ".join(f"{one:.0f}" for one in processor),
        ),
    ]
