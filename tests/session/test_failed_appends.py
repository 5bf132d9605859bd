"""An append that fails or is cancelled leaves nothing, and the session goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import StoreFull
from eventctx.log.events import PlanEnd, PlanStart
from eventctx.log.record import Draft
from eventctx.log.store import Appended, Expected
from eventctx.stores.ack import Ack
from eventctx.stores.memory import MemoryStore

USER = {"role": "user", "content": "hello"}


class Failing(MemoryStore):
    """A store whose next appends fail as a full disk makes them fail."""

    failures = 0

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        if self.failures:
            self.failures -= 1
            return Ack.failed(StoreFull("no space left on the disk"))
        return super().append(stream, drafts, expected)


async def test_an_unwritten_activity_event_is_raised_by_the_next_awaited_call() -> None:
    store = Failing()
    engine = Engine(store)
    ctx = await engine.session("s")
    store.failures = 1  # the event rides on the message, so one append holds both
    await ctx.emit(PlanStart())
    with pytest.raises(StoreFull):
        await ctx.add_message(USER)
    await ctx.add_message(USER)
    await ctx.emit(PlanEnd())
    await ctx.close()
    types = [record.type async for record in engine.records("s")]
    assert types == ["session:start", "plan:start", "context:message_added", "plan:end"]


async def test_a_turn_that_cannot_begin_leaves_no_trace_of_itself() -> None:
    store = Failing()
    engine = Engine(store)
    ctx = await engine.session("s")
    store.failures = 1
    with pytest.raises(StoreFull):
        async with ctx.turn("never"):
            raise AssertionError("the block must not run")
    await ctx.add_message(USER)
    assert [record.turn_id async for record in engine.records("s")] == [None, None]


async def test_a_failed_append_leaves_nothing_and_the_view_is_read_again() -> None:
    store = Failing()
    engine = Engine(store)
    ctx = await engine.session("s")
    await ctx.add_message(USER)
    for call in (
        lambda: ctx.add_message({"role": "user", "content": "lost"}),
        lambda: ctx.get_messages_for_request(),
        lambda: ctx.set_messages([]),
        lambda: ctx.clear(),
        lambda: ctx.pin(0),
    ):
        store.failures = 1
        with pytest.raises(StoreFull):
            await call()
        assert await ctx.get_messages() == [USER]
        assert await ctx.get_token_count() > 0
    assert await ctx.get_messages_for_request() == [USER]
    assert (await engine.verify("s")).ok


async def test_cancelling_a_call_leaves_a_sound_session(tmp_path: Path) -> None:
    async with eventctx.open(tmp_path / "c.db") as engine:
        ctx = await engine.session("s", max_tokens=2_000)
        for number in range(60):
            message = {"role": "user", "content": f"{number} " + "x" * 300}
            task = asyncio.ensure_future(
                ctx.add_message(message) if number % 3 else ctx.get_messages_for_request()
            )
            for _ in range(number % 4):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await ctx.add_message(USER)
        messages = await ctx.get_messages()
        assert messages[-1] == USER
        assert (await ctx.get_messages_for_request())[-1] == USER
        assert (await engine.verify("s")).ok
