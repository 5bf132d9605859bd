"""Sessions of an engine: opened once, whatever came of an earlier attempt, and all closed."""

from __future__ import annotations

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
        await context._session.appends.drained()
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
