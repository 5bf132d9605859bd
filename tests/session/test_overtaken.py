"""Processes on one session: a log that verifies is never called corrupted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import LogCorrupted, SessionWasDeleted, WrongExpectedVersion
from eventctx.log.integrity import sound_bodies
from eventctx.log.record import Body, Draft
from eventctx.log.store import Address, Appended, Expected, StreamInfo
from eventctx.stores.memory import MemoryStore
from tests.sessions import USER


class BusyStore(MemoryStore):
    """Lets other tasks run before each answer, for as long as ``chance`` says."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def _wait(self, most: int) -> None:
        for _ in range(self._chance.randrange(most)):
            await asyncio.sleep(0)

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        return asyncio.ensure_future(self._acknowledged(super().append(stream, drafts, expected)))

    async def _acknowledged(self, ack: Awaitable[Appended]) -> Appended:
        await self._wait(8)
        return await ack

    async def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        await self._wait(6)
        return await super().bodies(stream, addresses)

    async def head(self, stream: str) -> StreamInfo | None:
        await self._wait(4)
        return await super().head(stream)


async def _one_step(ctx: eventctx.Context, chance: random.Random, name: str) -> None:
    step = chance.random()
    if step < 0.5:
        words = "word " * chance.choice((3, 300))
        await ctx.add_message({"role": "user", "content": f"{name} You must never do it. {words}"})
    elif step < 0.7:
        await ctx.get_messages_for_request()
    elif step < 0.78:
        await ctx.compact()
    elif step < 0.82:
        await ctx.clear()
    elif step < 0.9:
        await ctx.set_messages([{"role": "user", "content": f"set {name}"}])
    else:
        await ctx.get_messages()


@pytest.mark.parametrize("policy", ["workset", "truncate", "ladder"])
@pytest.mark.parametrize("seed", [0, 3, 4])
async def test_processes_on_one_session_meet_conflicts_at_most(policy: str, seed: int) -> None:
    store = BusyStore(random.Random(seed))  # noqa: S311
    engines = [Engine(store) for _ in range(3)]

    async def work(engine: Engine, number: int) -> None:
        chance = random.Random(seed * 100 + number)  # noqa: S311
        ctx = await engine.session("s", max_tokens=2_500, on_overflow="send_floor", policy=policy)
        for _ in range(25):
            await store._wait(1 + chance.randrange(4))
            try:
                await _one_step(ctx, chance, str(number))
            except WrongExpectedVersion:
                continue

    await asyncio.gather(
        *[work(one, 10 * place + task) for place, one in enumerate(engines) for task in range(4)]
    )
    assert (await engines[0].verify("s")).ok


async def test_a_body_beyond_the_log_is_a_conflict_and_not_damage() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    await ctx.add_message(USER)
    with pytest.raises(WrongExpectedVersion):
        await sound_bodies(engine.store, "s", [Address(7, 0)])
    with pytest.raises(LogCorrupted):
        await sound_bodies(engine.store, "s", [Address(0, 5)])


async def test_a_session_that_was_deleted_meanwhile_is_not_damaged() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    await ctx.add_message(USER)
    await ctx.close()
    await engine.delete("s")
    with pytest.raises(SessionWasDeleted):
        await sound_bodies(engine.store, "s", [Address(1, 0)])
