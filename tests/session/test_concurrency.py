"""One session from several tasks, threads and processes, and after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import (
    WrongExpectedVersion,
)
from eventctx.log import events
from eventctx.messages.encoding import encode_message
from eventctx.projections.view.snapshot import NAME as SNAPSHOT
from eventctx.session.aggregate import SNAPSHOT_EVERY
from eventctx.session.contents import MAX_BYTES, MAX_NEW
from eventctx.session.context import Context
from eventctx.session.pending import Listener
from eventctx.session.repository import load, open_session
from eventctx.session.transcript import Transcript
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.sessions import USER, filled, names


async def test_adds_from_many_tasks_are_all_there_in_one_order() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await asyncio.gather(
            *(ctx.add_message({"role": "user", "content": str(n)}) for n in range(300)),
            *(ctx.get_messages_for_request() for _ in range(10)),
        )
        messages = await ctx.get_messages()
        assert sorted(int(m["content"]) for m in messages) == list(range(300))
        assert (await engine.verify("s")).ok


def test_one_context_can_be_used_from_several_threads_with_their_own_loops() -> None:
    loop = asyncio.new_event_loop()
    engine = loop.run_until_complete(_engine())
    ctx = loop.run_until_complete(engine.session("s"))

    async def add(start: int) -> None:
        for n in range(start, start + 50):
            await ctx.add_message({"role": "user", "content": str(n)})

    threads = [threading.Thread(target=lambda s=s: asyncio.run(add(s))) for s in range(0, 200, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    messages = loop.run_until_complete(ctx.get_messages())
    assert sorted(int(m["content"]) for m in messages) == list(range(200))
    loop.run_until_complete(engine.close())
    loop.close()


async def _engine() -> Engine:
    return Engine(MemoryStore())


async def test_an_add_reloads_when_another_process_wrote_in_between() -> None:
    store = MemoryStore()
    ours, theirs = Engine(store), Engine(store)
    a, b = await ours.session("s"), await theirs.session("s")
    await a.add_message({"role": "user", "content": "a"})
    await b.add_message({"role": "user", "content": "b"})
    await a.add_message({"role": "user", "content": "c"})
    expected = [{"role": "user", "content": text} for text in "abc"]
    assert await a.get_messages() == await b.get_messages() == expected
    assert await a.get_messages_for_request() == expected
    assert await b.get_messages_for_request() == expected
    assert (await ours.verify("s")).ok


async def test_calls_of_one_process_keep_their_order_through_a_conflict() -> None:
    store = MemoryStore()
    ours, theirs = Engine(store), Engine(store)
    a, b = await ours.session("s"), await theirs.session("s")
    for attempt in range(20):
        await b.add_message({"role": "user", "content": "theirs"})
        await asyncio.gather(
            *(a.add_message({"role": "user", "content": f"{attempt}.{n}"}) for n in range(6))
        )
    texts = [m["content"] for m in await a.get_messages() if m["content"] != "theirs"]
    assert texts == [f"{attempt}.{n}" for attempt in range(20) for n in range(6)]
    times = [record.time async for record in ours.records("s")]
    assert times == sorted(times)


async def test_turns_of_several_processes_have_different_numbers_and_their_records_inside() -> None:
    store = MemoryStore()
    ours, theirs = Engine(store), Engine(store)
    a, b = await ours.session("s"), await theirs.session("s")

    async def turns(ctx: eventctx.Context) -> list[int]:
        numbers = []
        for _ in range(5):
            async with ctx.turn() as turn:
                await ctx.add_message(USER)
                numbers.append(turn.number)
        return numbers

    first, second = await asyncio.gather(turns(a), turns(b))
    assert sorted(first + second) == list(range(1, 11))
    await a.close()
    await b.close()
    seen: dict[str, list[str]] = {}
    async for record in ours.records("s"):
        if record.turn_id is not None:
            seen.setdefault(record.turn_id, []).append(record.type)
    expected = ["prompt:submit", "context:message_added", "prompt:complete"]
    assert list(seen.values()) == [expected] * 10


async def test_a_conflict_in_mid_request_does_not_reach_the_caller() -> None:
    class Slow(MemoryStore):
        pause: asyncio.Event | None = None

        async def bodies(self, stream: str, addresses: Any) -> Any:
            if self.pause is not None:
                await self.pause.wait()
            return await super().bodies(stream, addresses)

    store = Slow()
    a = await Engine(store).session("s")
    b = await Engine(store).session("s")
    await b.add_message(USER)
    await a.add_message(USER)
    store.pause = asyncio.Event()
    request = asyncio.create_task(a.get_messages_for_request())
    await asyncio.sleep(0)
    await b.add_message(USER)
    adding = asyncio.create_task(a.add_message(USER))
    for _ in range(20):
        await asyncio.sleep(0)
    store.pause.set()
    await adding
    assert set(map(str, await request)) == {str(USER)}


async def test_a_set_a_clear_and_a_compaction_raise_when_another_process_wrote_unseen() -> None:
    store = MemoryStore()
    ctx = await Engine(store).session("s")
    other = await Engine(store).session("s")
    await ctx.add_message(USER)
    await other.get_messages()
    for act in (ctx.clear, ctx.compact, lambda: ctx.set_messages([USER])):
        await other.add_message({"role": "user", "content": "theirs"})
        before = await other.get_messages()
        with pytest.raises(WrongExpectedVersion, match=r"expected version \d+, found \d+"):
            await act()
        assert await ctx.get_messages() == before
    await ctx.set_messages([USER])
    assert await other.get_messages() == [USER]
    await ctx.clear()
    assert await other.get_messages() == []


@settings(deadline=None, max_examples=some(15, 40))
@given(
    plan=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["add", "request", "turn", "compact"])),
        max_size=25,
    )
)
def test_several_processes_on_one_session_lose_nothing(plan: list[tuple[int, str]]) -> None:
    async def play() -> None:
        store = MemoryStore()
        contexts = [await Engine(store).session("s", max_tokens=2_000) for _ in range(3)]
        added = []

        async def act(step: int, who: int, what: str) -> None:
            ctx = contexts[who]
            if what == "add":
                await ctx.add_message({"role": "user", "content": f"{step}"})
                added.append(f"{step}")
            elif what == "request":
                await ctx.get_messages_for_request()
            elif what == "compact":
                with contextlib.suppress(WrongExpectedVersion):
                    await ctx.compact()
            else:
                async with ctx.turn():
                    await ctx.add_message({"role": "user", "content": f"{step}"})
                added.append(f"{step}")

        await asyncio.gather(*(act(n, who, what) for n, (who, what) in enumerate(plan)))
        for ctx in contexts:
            await ctx.close()
            assert sorted(m["content"] for m in await ctx.get_messages()) == sorted(added)
        engine = Engine(store)
        assert (await engine.verify("s")).ok
        turns = [r async for r in engine.records("s") if r.type == "prompt:submit"]
        assert len(turns) == sum(what == "turn" for _, what in plan)
        for row in (await engine.audit("s")).requests:
            assert (await engine.request_view("s", position=row.position)).verified

    asyncio.run(play())


async def test_a_long_session_opens_from_a_snapshot_and_its_tail(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with eventctx.open(path) as engine:
        ctx = await filled(engine, rounds=400, max_tokens=20_000)
        view = await ctx.get_messages_for_request()
    async with eventctx.open(path) as engine:
        snapshot = await engine.store.load_snapshot("s", SNAPSHOT)
        assert snapshot is not None
        head = await engine.store.head("s")
        assert head is not None
        assert head.head - snapshot.position < 10
        assert len(snapshot.data) < 10_000
        ctx = await engine.session("s", max_tokens=20_000)
        assert await ctx.get_messages_for_request() == view


async def test_a_message_waits_for_its_fold_where_no_snapshot_is_due() -> None:
    session = await open_session(MemoryStore(), "s", Listener(lambda record: None), time.time_ns)
    transcript = Transcript(session)
    for number in range(3 * SNAPSHOT_EVERY):
        await transcript.add({"role": "user", "content": str(number)})
    waiting = session.aggregate.unfolded_bytes
    await transcript.add(USER)
    assert session.aggregate.unfolded_bytes == waiting + len(encode_message(USER))


async def test_a_snapshot_that_does_not_fit_the_log_is_not_used() -> None:
    store = MemoryStore()
    engine = Engine(store)
    await filled(engine, rounds=400, max_tokens=20_000)
    snapshot = await store.load_snapshot("s", SNAPSHOT)
    assert snapshot is not None
    whole = await load(store, "s")
    for change in ({"digest": bytes(32)}, {"version": 99}, {"position": 10**6}):
        store.save_snapshot("s", SNAPSHOT, msgspec.structs.replace(snapshot, **change))
        again = await load(store, "s")
        assert whole is not None
        assert again is not None
        assert again.view.layout.measure() == whole.view.layout.measure()


async def test_a_compaction_that_a_crash_left_open_is_closed_as_failed() -> None:
    store = MemoryStore()
    ctx = await Engine(store).session("s")
    began = events.PreCompact(
        trigger="manual", strategy="slow", strategy_version=1, tokens=9, messages=1
    )
    await ctx._session.appends.append(ctx._session.drafts.make(began))
    await ctx.close()
    engine = Engine(store)
    await engine.session("s")
    row = (await engine.audit("s")).compactions[-1]
    assert (row.outcome, row.strategy) == ("failed", "slow")
    await Engine(store).session("s")
    assert (await names(engine)).count("context:post_compact") == 1


async def test_requests_and_adds_of_many_threads_neither_fail_nor_get_lost() -> None:
    ctx = await Engine(MemoryStore()).session("s")
    failures: list[BaseException] = []

    async def work(start: int) -> None:
        for number in range(start, start + 25):
            await ctx.add_message({"role": "user", "content": str(number)})
            await ctx.get_messages_for_request()
            await ctx.get_messages()

    def run(start: int) -> None:
        try:
            asyncio.run(work(start))
        except BaseException as error:
            failures.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run, args=(start,)) for start in range(0, 150, 25)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
    finally:
        sys.setswitchinterval(before)
    assert failures == []
    assert sorted(int(m["content"]) for m in await ctx.get_messages()) == list(range(150))


@pytest.mark.slow
async def test_bodies_kept_in_memory_have_a_bound() -> None:
    ctx = await Engine(MemoryStore()).session("s", max_tokens=10**9)
    most = 0
    for number in range(24):
        await ctx.add_message({"role": "user", "content": f"{number} " + "x" * 2**21})
        assert ctx._session.aggregate.view.messages == number + 1
        most = max(most, held(ctx))
    assert 2**21 < most <= MAX_NEW
    assert len(await ctx.get_messages_for_request()) == 24
    assert 2**24 < held(ctx) <= MAX_BYTES


async def test_bodies_that_a_request_fetched_count_against_the_bound(tmp_path: Path) -> None:
    url = tmp_path / "large.db"
    async with eventctx.open(url) as engine:
        ctx = await engine.session("s", max_tokens=10**9)
        for number in range(24):
            await ctx.add_message({"role": "user", "content": f"{number} " + "x" * 2**21})
    async with eventctx.open(url) as engine:
        ctx = await engine.session("s", max_tokens=10**9)
        for _ in range(2):
            assert len(await ctx.get_messages_for_request()) == 24
            assert 2**24 < held(ctx) <= MAX_BYTES
            assert ctx._session.bodies.bytes_held == held(ctx)


def held(ctx: Context) -> int:
    """Bytes of bodies that a session really has in memory."""
    bodies = ctx._session.bodies
    return sum(len(data or b"") for kept in (bodies._held, bodies._new) for data in kept.values())
