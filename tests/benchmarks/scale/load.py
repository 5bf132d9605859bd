"""One process of a load: it begins things when they are due, whether or not the last have ended.

``python -m tests.benchmarks.scale.load URL agents|appends NUMBER RATE SECONDS`` opens the store,
says ``ready``, waits for a line, and then plays for so long. It writes one line of JSON, a
``Played``. A latency counts from when a thing was due, so that waiting for a slow store is in it.

``agents``: NUMBER sessions of the engine, each with RATE requests a second, of which each is what
recorded agents do: a request, an answer that calls a tool, and the tool's result. ``appends``: RATE
appends a second in all, over NUMBER streams, straight to the store.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import msgspec

import eventctx
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.record import Draft
from eventctx.log.store import NO_STREAM
from eventctx.policies.simple import Simple
from tests.benchmarks.scale.subjects import resident
from tests.benchmarks.workload import draft, text

ROUNDS = 20
"""Requests of a turn."""

KEEP, BUDGET = 20, 30_000
"""Messages that a compaction keeps, and tokens of a request: one in twenty or so compacts."""

ANSWER, RESULT = 1_200, 4_800
"""Characters of a model's answer and of a tool's result, as recorded sessions have on average."""

BODY = 2_000
"""Characters of the message of a bare append, behind two records without."""


class Played(msgspec.Struct):
    """What became of the load: seconds of each thing that was done, and of the processor."""

    latencies: list[float]
    due: int
    seconds: float
    processor: float
    memory: int
    memory_before: int


class Clock(NamedTuple):
    """When a load begins and ends."""

    began: float
    until: float

    @property
    def now(self) -> float:
        return time.perf_counter()


async def main(url: str, kind: str, number: int, rate: float, seconds: float) -> None:
    dice = random.Random(os.getpid())  # noqa: S311 - arrivals
    prefix = f"load-{os.getpid()}-{time.time_ns()}"
    async with eventctx.open(url) as engine:
        before = resident(os.getpid())
        if kind == "agents":
            contexts = [await new_session(engine, f"{prefix}-{n}") for n in range(number)]
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        clock = Clock(began, began + seconds)
        spent = time.process_time()
        latencies: list[float] = []
        if kind == "agents":
            due = sum(
                await asyncio.gather(
                    *[_agent(one, rate, clock, dice, latencies.append) for one in contexts]
                )
            )
        else:
            due = await _appends(engine.store, prefix, number, rate, clock, dice, latencies.append)
        took = clock.now - began
        spent = time.process_time() - spent
        played = Played(latencies, due, took, spent, resident(os.getpid()), before)
    print(msgspec.json.encode(played).decode(), flush=True)


async def new_session(engine: eventctx.Engine, name: str) -> eventctx.Context:
    """A session with the settings of these agents."""
    return await engine.session(name, policy=Simple(keep_recent=KEEP), max_tokens=BUDGET)


# -- agents ----------------------------------------------------------------------------------------


async def _agent(
    context: eventctx.Context,
    rate: float,
    clock: Clock,
    dice: random.Random,
    took: Callable[[float], None],
) -> int:
    """Requests of one agent, until the end; how many were due."""
    at = clock.began + dice.expovariate(rate)
    due = number = 0
    while at < clock.until:
        async with context.turn() as turn:
            await context.add_message({"role": "user", "content": text(number, 300)})
            for _ in range(ROUNDS):
                await asyncio.sleep(max(0.0, at - clock.now))
                async with turn.iteration() as iteration:
                    await _request(context, iteration, number)
                took(clock.now - at)
                number += 2
                due += 1
                at += dice.expovariate(rate)
                if at >= clock.until:
                    break
                # One that is far behind has shown that the load is too much.
                if clock.now > clock.until + 5.0:
                    return due
    return due


async def _request(context: eventctx.Context, iteration: eventctx.Iteration, number: int) -> None:
    rows = await context.get_messages_for_request()
    answer, call, result = step_messages(number)
    async with iteration.provider_call("a-model") as model:
        await model.usage(300 * len(rows), 300, cache_read=200 * len(rows))
    await context.add_message(answer)
    async with iteration.tool_call("read", call):
        pass
    await context.add_message(result)


def step_messages(number: int) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """An answer that calls a tool, the id of the call, and its result."""
    call = f"c{number}"
    use = {"type": "tool_use", "id": call, "name": "read", "input": {"path": f"{number}"}}
    said = {"type": "text", "text": _text(number, ANSWER)}
    block = {"type": "tool_result", "tool_use_id": call, "content": _text(number, RESULT)}
    return {"role": "assistant", "content": [said, use]}, call, {"role": "user", "content": [block]}


@cache
def _some(number: int, characters: int) -> str:
    return text(number, characters)


def _text(number: int, characters: int) -> str:
    """A text of its own, without the time that it takes to make one."""
    return f"{number} {_some(number % 40, characters)}"


# -- bare appends ----------------------------------------------------------------------------------


async def _appends(
    store: Any,
    prefix: str,
    streams: int,
    rate: float,
    clock: Clock,
    dice: random.Random,
    took: Callable[[float], None],
) -> int:
    heads = [-1] * streams
    under_way: set[asyncio.Task[None]] = set()

    async def one(stream: int, at: float) -> None:
        drafts = drafts_of_append()
        head, heads[stream] = heads[stream], heads[stream] + len(drafts)
        await store.append(f"{prefix}-{stream}", drafts, head if head >= 0 else NO_STREAM)
        took(clock.now - at)

    due = 0
    at = clock.began
    while at < clock.until and clock.now < clock.until + 5.0:
        # A sleep is as exact as a millisecond; all that are due by then begin at once.
        await asyncio.sleep(max(0.0, at - clock.now))
        while at <= clock.now and at < clock.until:
            task = asyncio.create_task(one(dice.randrange(streams), at))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            due += 1
            at += dice.expovariate(rate)
    await asyncio.gather(*under_way)
    return due


def drafts_of_append() -> list[Draft]:
    """Three records of which one holds a message: what an append of an agent has on average."""
    return [_activity(), _activity(), draft({"role": "user", "content": _some(1, BODY)})]


def _activity() -> Draft:
    name, version, payload = encode_event(events.UsageReported(prompt=1000, output=300))
    return Draft(os.urandom(16), name, version, time.time_ns(), payload)


if __name__ == "__main__":
    _, url, kind, number, rate, seconds = sys.argv
    asyncio.run(main(url, kind, int(number), float(rate), float(seconds)))
