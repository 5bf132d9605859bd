"""The whole transcript from memory: what an answer reads, writes and holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine, open_engine
from eventctx.errors import StoreFull
from eventctx.log.events import PlanStart
from eventctx.session.contents import MAX_ROW_BYTES, MAX_UNASKED
from eventctx.stores.memory import MemoryStore
from tests.session.counting_store import CountingStore
from tests.session.given import opened
from tests.sessions import USER, tool_round, user


async def test_the_second_answer_reads_and_writes_nothing() -> None:
    store = CountingStore()
    _, ctx = await opened(USER, store=store)
    await ctx.get_messages()
    await ctx.add_messages(tool_round(1))
    await ctx.set_messages([USER, *tool_round(2)])
    await ctx.get_messages_for_request()
    store.calls.clear()
    assert await ctx.get_messages() == [USER, *tool_round(2)]
    await ctx.clear()
    assert await ctx.get_messages() == []
    await ctx.add_message(USER)
    assert await ctx.get_messages() == [USER]
    assert store.calls == ["append", "append"]


async def test_a_mark_tells_who_holds_a_copy_that_others_changed_it(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with open_engine(path) as engine, open_engine(path) as other:
        ctx = await engine.session("s")
        await ctx.add_message(USER)
        await ctx.get_messages()
        before = await ctx.transcript_mark()
        await ctx.get_messages_for_request()
        again = await ctx.transcript_mark()
        assert (again.messages, again.continues(before)) == (1, True)
        await (await other.session("s")).add_message(tool_round(1)[0])
        longer = await ctx.transcript_mark()
        assert (longer.messages, longer.continues(before)) == (2, True)
        await (await other.session("s")).set_messages([tool_round(2)[0], tool_round(1)[0]])
        changed = await ctx.transcript_mark()
        assert (changed.messages, changed.continues(longer)) == (2, False)


async def test_the_first_answer_of_a_fresh_process_reads_no_record_again() -> None:
    store = CountingStore()
    _, ctx = await opened(USER, *tool_round(1), store=store)
    again = await Engine(store).session("s")
    store.calls.clear()
    assert await again.get_messages() == await ctx.get_messages()
    assert "read" not in store.calls
    assert await again.get_timed_messages() == await ctx.get_timed_messages()
    await again.compact()
    assert await (await Engine(store).session("s")).get_messages() == await ctx.get_messages()


async def test_behind_another_writer_only_its_messages_are_read() -> None:
    store = CountingStore()
    _, ctx = await opened(USER, *tool_round(1), store=store)
    await ctx.get_messages()
    read: list[int] = []
    bodies = store.bodies

    async def noting(stream: str, addresses: Sequence[Any]) -> Any:
        read.append(len(addresses))
        return await bodies(stream, addresses)

    store.bodies = noting  # type: ignore[method-assign]
    other = await Engine(store).session("s")
    await other.add_message(user("mine"))
    assert len(await ctx.get_messages()) == 4
    assert read == [1]


class HeadOnly(CountingStore):
    """Another people's store, which offers no peek."""

    peek = None  # type: ignore[assignment]


async def test_a_store_without_a_peek_is_asked_for_its_head() -> None:
    store = HeadOnly()
    _, ctx = await opened(USER, store=store)
    await ctx.get_messages()
    store.calls.clear()
    assert await ctx.get_messages() == [USER]
    assert store.calls == ["head"]
    await (await Engine(store).session("s")).add_message(USER)
    assert await ctx.get_messages() == [USER, USER]


async def test_a_message_that_was_not_written_is_in_no_answer() -> None:
    store = CountingStore()
    _, ctx = await opened(USER, store=store)
    await ctx.get_messages()
    store.full = True
    with pytest.raises(StoreFull):
        await ctx.add_message(user("lost"))
    assert await ctx.get_messages() == [USER]
    store.full = False
    await ctx.add_message(user("kept"))
    assert await ctx.get_messages() == [USER, user("kept")]


class Slow(CountingStore):
    """A store whose appends are acknowledged only when ``go`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.go.set()

    def append(self, *args: Any) -> Any:
        return asyncio.ensure_future(self._late(super().append(*args)))

    async def _late(self, ack: Any) -> Any:
        await self.go.wait()
        return await ack


class SlowHead(Slow):
    """One that offers no peek, besides."""

    peek = None  # type: ignore[assignment]

    async def head(self, *args: Any) -> Any:
        found = await super().head(*args)
        await asyncio.sleep(0)
        return found


@pytest.mark.parametrize("kind", [Slow, SlowHead])
async def test_an_answer_holds_only_what_is_on_disk(kind: type[Slow]) -> None:
    store = kind()
    _, ctx = await opened(USER, store=store)
    await ctx.get_messages()
    store.go.clear()
    asking = asyncio.create_task(ctx.get_messages())
    adding = asyncio.create_task(ctx.add_message(user("under way")))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not adding.done()
    if asking.done():
        assert asking.result() == [USER]
    behind = asyncio.create_task(ctx.get_messages())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not behind.done()
    store.go.set()
    await adding
    assert len(await behind) == 2
    assert await asking in ([USER], await behind)


class OneLateRead(MemoryStore):
    """A store whose first read of bodies is delivered when ``go`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.read_once, self.go = asyncio.Event(), asyncio.Event()

    async def bodies(self, *args: Any) -> Any:
        found = await super().bodies(*args)
        if not self.read_once.is_set():
            self.read_once.set()
            await self.go.wait()
        return found


async def test_what_is_erased_while_it_is_read_does_not_stay_in_memory() -> None:
    store = OneLateRead()
    engine, ctx = await opened(user("secret"), store=store)
    asking = asyncio.create_task(ctx.get_messages())
    await store.read_once.wait()
    await engine.erase("s", [0])
    store.go.set()
    await asking
    assert ctx._session.lines.row_bytes == 0
    assert await ctx.get_messages() == [user("[erased]")]


async def test_its_memory_is_counted_and_dropped_after_the_last_question() -> None:
    _, ctx = await opened(*[user("x" * 1_000)] * 200)
    session = ctx._session
    before = session.bytes_held
    await ctx.get_messages()
    assert 200_000 < session.lines.row_bytes < 240_000
    assert session.bytes_held - before > session.lines.row_bytes
    for number in range(MAX_UNASKED - 10):
        await ctx.emit(PlanStart())
        if number % 200 == 0:
            await ctx.add_message(USER)
        assert session.lines.row_bytes > 0, number
    for _ in range(20):
        await ctx.add_message(USER)
    assert session.lines.row_bytes == 0
    await ctx.get_messages()
    for _ in range(3):
        for _ in range(MAX_UNASKED // 2):
            await ctx.emit(PlanStart())
        await ctx.add_message(USER)
        assert session.lines.row_bytes > 0
        await ctx.get_messages()


@pytest.mark.slow
async def test_a_transcript_over_the_bound_is_answered_and_not_held() -> None:
    half = user("x" * (MAX_ROW_BYTES // 2))
    _, ctx = await opened(half)
    await ctx.get_messages()
    assert ctx._session.lines.row_bytes > 0
    await ctx.add_message(half)
    assert ctx._session.lines.row_bytes == 0
    assert len(await ctx.get_messages()) == 2
    assert ctx._session.lines.row_bytes == 0
