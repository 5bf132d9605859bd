"""Storms of cancellations: whatever is under way ends at any await, and the log stays whole.

Tasks of two engines take turns, call tools, ask for requests and compact in the same sessions; so
they also wait for each other's records. Each is cancelled at a random point, some of them while
they clean up. Then every turn and compaction that began has its end, and every
message that was acknowledged is there once.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import WrongExpectedVersion
from tests.faults.counts import report, trials
from tests.faults.given import scratch
from tests.faults.processes import check_store

pytestmark = pytest.mark.slow

SESSIONS = ("a", "b", "c")
TASKS = 24


async def slowly(request: eventctx.SummaryRequest) -> str:
    """A summarizer that takes a few steps of the loop, so that it is cancelled, too."""
    for _ in range(len(request.messages) % 7):
        await asyncio.sleep(0)
    return f"summary of {len(request.messages)}"


class Storm:
    """Tasks on the sessions of two engines, and what was acknowledged to them."""

    def __init__(self, engines: Sequence[Engine], chance: random.Random) -> None:
        self._engines = engines
        self._chance = chance
        self.acknowledged: list[eventctx.Receipt] = []
        self.cancelled = 0
        self.beaten = 0

    async def task(self, name: str, number: int, kind: int) -> None:
        engine = self._engines[number % 2]
        context = await engine.session(
            name, max_tokens=3_000, policy="summarize", summarizer=slowly
        )
        if kind < 2:
            await (context.get_messages_for_request() if kind else context.compact())
            return
        async with context.turn(f"turn {number}") as turn, turn.iteration() as cycle:
            text = f"{name} {number} " + "x" * 700
            self.acknowledged.append(await context.add_message({"role": "user", "content": text}))
            await context.get_messages_for_request()
            async with cycle.provider_call("a model"):
                await asyncio.sleep(0)
            async with cycle.tool_call("look", f"c{number}"):
                await asyncio.sleep(0)
            answer = {"role": "assistant", "content": f"answer {number}"}
            self.acknowledged.append(await context.add_message(answer))

    async def rage(self) -> None:
        """Start tasks, and cancel each at a random moment, many of them more than once."""
        chance = self._chance
        running = [
            asyncio.create_task(self.task(chance.choice(SESSIONS), number, chance.randrange(6)))
            for number in range(TASKS)
        ]
        waiting = list(running)
        while waiting:
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(0)
            if chance.random() < 0.3:
                await asyncio.sleep(0.001)  # the disk's thread gets on
            victim = chance.choice(waiting)
            victim.cancel()
            for _ in range(chance.choice([0, 0, 1, 2, 3, 5])):  # and while it cleans up
                await asyncio.sleep(0)
                victim.cancel()
            if chance.random() < 0.6:
                waiting.remove(victim)
        ended = await asyncio.gather(*running, return_exceptions=True)
        for one in ended:
            if isinstance(one, asyncio.CancelledError):
                self.cancelled += 1
            elif isinstance(one, WrongExpectedVersion):
                self.beaten += 1  # the other engine was faster with a compaction
            elif isinstance(one, BaseException):
                raise one


async def check_ends(path: Path, acknowledged: list[eventctx.Receipt]) -> None:
    """Assert that what began has ended, and that what was acknowledged is there."""
    async with eventctx.open(path, receipts=False) as engine:
        for info in await engine.sessions():
            # As the next process does: it closes compactions.
            await engine.session(info.stream, policy="workset")
            records = [record async for record in engine.records(info.stream)]
            types = Counter(record.type for record in records)
            for begin, ends in (
                ("prompt:submit", ("prompt:complete",)),
                ("context:pre_compact", ("context:post_compact",)),
                ("provider:request", ("provider:response", "provider:error")),
                ("tool:pre", ("tool:post", "tool:error")),
            ):
                assert types[begin] == sum(types[end] for end in ends), (begin, types)
            digests = {record.position: record.digest for record in records}
            own = [one for one in acknowledged if one.stream == info.stream]
            assert all(digests[one.position] == one.digest for one in own)
            said = [one.message for one in await engine.transcript(info.stream) if one.message]
            asked = [one["content"] for one in said if one["role"] == "user"]
            assert len(set(asked)) == len(asked), "a message is there twice"


async def storm_often(count: int, seed: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for number in range(count):
        with scratch() as folder:
            path = folder / "store.db"
            async with (
                asyncio.timeout(60),
                eventctx.open(path, receipts=False) as one,
                eventctx.open(path, receipts=False) as other,
            ):
                storm = Storm((one, other), random.Random(seed * 1000 + number))
                await storm.rage()
            await check_ends(path, storm.acknowledged)
            await check_store(path)
        found += Counter(storms=1, tasks=TASKS, cancelled=storm.cancelled)
        found += Counter(conflicts=storm.beaten, acknowledged=len(storm.acknowledged))
    return found


async def test_cancellations_at_any_moment_leave_a_whole_log() -> None:
    found = await storm_often(trials("storms"), 1)
    assert found["cancelled"] > 0 and found["acknowledged"] > 0
    report("storms", found)
