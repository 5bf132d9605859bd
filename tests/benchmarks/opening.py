"""Opening a long session that was compacted, and preparing its request, in a fresh engine."""

from __future__ import annotations

import eventctx
from tests.benchmarks.agent import build, run_rounds, session_of
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row
from tests.benchmarks.timing import Samples, quantile

FIGURE = "open a session"
NAME = "long"


async def measure(place: Place) -> list[Row]:
    length = place.count(10_000, 2000)
    path = place.path("open.db")
    await build(path, NAME, length)
    samples = Samples()
    shown: list[int] = []
    # One engine stays open, as the others of a host would: the last to close tidies the file up.
    async with eventctx.open(path):
        for repeat in range(place.count(60, 12)):
            async with eventctx.open(path) as engine:
                context = await samples.time("open", lambda: session_of(engine, NAME))
                messages = await samples.time("request", context.get_messages_for_request)
                samples.add("both", *_sums_of_last(samples))
                shown.append(len(messages))
                # The session goes on, so that the next opening finds another tail to read.
                first = length + 8 * repeat
                await run_rounds(context, first, first + 8)
    both = samples.by_name["both"]
    return [
        Row(
            figure=FIGURE,
            name=f"open and prepare, {length:,} messages, compacted",
            value=samples.milli("both"),
            unit="ms",
            limit=5.0,
            cpu=samples.cpu("both"),
            note=f"{min(shown)} to {max(shown)} messages in view; "
            f"p90 {quantile(both, 0.9) * 1e3:.2f} ms",
        ),
        Row(
            figure=FIGURE,
            name="  of that, session()",
            value=samples.milli("open"),
            unit="ms",
            cpu=samples.cpu("open"),
        ),
        Row(
            figure=FIGURE,
            name="  of that, get_messages_for_request()",
            value=samples.milli("request"),
            unit="ms",
            cpu=samples.cpu("request"),
        ),
    ]


def _sums_of_last(samples: Samples) -> tuple[float, float]:
    """Seconds of the last opening with its request, on the wall and of the processor."""
    wall, processor = (
        clock["open"][-1] + clock["request"][-1] for clock in (samples.by_name, samples.processor)
    )
    return wall, processor
