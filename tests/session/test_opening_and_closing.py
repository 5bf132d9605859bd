"""Sessions of an engine: opened once, whatever came of an earlier attempt, and all closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import pytest

from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, StoreFull
from eventctx.log.events import PlanStart
from eventctx.log.record import Draft
from eventctx.log.store import Appended, Expected
from eventctx.policies.advisers import SummaryRequest
from eventctx.stores.ack import Ack
from eventctx.stores.memory import MemoryStore
from tests.sessions import names


class FullFor(MemoryStore):
    """A store whose disk is full for some of its sessions."""

    full: frozenset[str] = frozenset()

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        if stream in self.full:
            return Ack.failed(StoreFull("no space left on the disk"))
        return super().append(stream, drafts, expected)

    async def close(self) -> None:
        """Stay readable: the records are what the test is about."""


async def one(request: SummaryRequest) -> str:
    return "one"


async def another(request: SummaryRequest) -> str:
    return "another"


async def test_an_engine_closes_every_session_although_one_cannot_be_written() -> None:
    store = FullFor()
    engine = Engine(store)
    contexts = {name: await engine.session(name) for name in ("a", "b", "c")}
    store.full = frozenset("abc")
    for context in contexts.values():
        await context.emit(PlanStart())
        await context._session.appends.drain()
    store.full = frozenset("a")
    with pytest.raises(StoreFull):
        await engine.close()
    again = Engine(store)
    found = {name: await names(again, name) for name in contexts}
    assert found["a"] == ["session:start"]
    assert found["b"] == found["c"] == ["session:start", "plan:start"]


async def test_an_opening_that_failed_binds_the_next_one_to_nothing() -> None:
    store = FullFor()
    store.full = frozenset("s")
    engine = Engine(store)
    with pytest.raises(StoreFull):
        await engine.session("s", policy="summarize", summarizer=one)
    store.full = frozenset()
    context = await engine.session("s", policy="summarize", summarizer=another)
    assert context.session_id == "s"


async def test_an_open_session_refuses_another_tokenizer_in_words() -> None:
    engine = Engine(MemoryStore())
    context = await engine.session("s", tokenizer=len)
    assert await engine.session("s") is context
    assert await engine.session("s", tokenizer=len) is context
    with pytest.raises(InvalidSetting, match="open with another tokenizer"):
        await engine.session("s", tokenizer=lambda text: 1)
    await engine.close_session("s")
    await engine.session("s", tokenizer=lambda text: 1)


async def test_an_engine_whose_close_is_cancelled_closes_every_session_first() -> None:
    store = Held()
    engine = Engine(store)
    for name in ("a", "b"):
        await (await engine.session(name)).emit(PlanStart())
    store.held = asyncio.get_running_loop().create_future()
    await (await engine.session("a")).emit(PlanStart())
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    closing.cancel()
    store.held.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert engine._sessions.context("a") is engine._sessions.context("b") is None


class Held(FullFor):
    """A store whose appends wait for ``held``, where there is one."""

    held: asyncio.Future[None] | None = None

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        ack = super().append(stream, drafts, expected)
        return ack if self.held is None else self._after(self.held, ack)

    async def _once(self, held: asyncio.Future[None], ack: Awaitable[Appended]) -> Appended:
        await asyncio.shield(held)
        return await ack

    def _after(self, held: asyncio.Future[None], ack: Awaitable[Appended]) -> Awaitable[Appended]:
        return asyncio.ensure_future(self._once(held, ack))
