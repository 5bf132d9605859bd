"""Activity events go with the next append that a caller waits for, or after a while alone."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import StoreFull
from eventctx.log.codec import decode_event
from eventctx.log.events import PlanEnd, PlanStart
from eventctx.log.record import Draft
from eventctx.log.store import Appended
from eventctx.session.append_queue import MAX_IN_FLIGHT
from eventctx.session.pending import IDLE_SECONDS, MAX_DEFERRED
from eventctx.stores.ack import Ack, settle
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.session.counting_store import CountingStore
from tests.session.given import opened, prove, signing_key
from tests.sessions import USER, names

ANSWER = {"role": "assistant", "content": "hi"}


Store = TypeVar("Store", bound=CountingStore)


async def begun(kind: type[Store]) -> tuple[Store, Engine, eventctx.Context]:
    store = kind()
    engine, ctx = await opened(USER, store=store)
    store.appends.clear()
    return store, engine, ctx


async def provider_events(engine: Engine) -> list[str]:
    return [one for one in await names(engine) if one.startswith("provider:")]


async def test_what_happens_around_a_message_or_a_request_goes_to_the_disk_with_it() -> None:
    store, engine, ctx = await begun(CountingStore)
    async with ctx.turn() as turn, turn.iteration() as cycle:
        async with cycle.tool_call("read"):
            pass
        await ctx.add_message(ANSWER)
        call = cycle.provider_call("m")
        await ctx.get_messages_for_request(call=call)
        async with call:
            pass
        await ctx.emit(PlanStart())
    assert store.appends == [
        ["prompt:submit"],
        ["tool:pre", "tool:post", "context:message_added"],
        ["context:request_prepared", "provider:request"],
        # The end of a turn waits for nothing else.
        ["provider:response", "plan:start", "prompt:complete"],
    ]
    records = [record async for record in engine.records("s")]
    (request,) = [one for one in records if one.type == "context:request_prepared"]
    assert call.prepared == request.position
    spans = [one.span_id for one in records if one.type.startswith("provider:")]
    assert spans == [call.span_id, call.span_id]


async def test_a_call_that_began_with_its_request_and_is_never_made_ends_all_the_same() -> None:
    reading = asyncio.Event()

    class Late(CountingStore):
        async def bodies(self, *args: object) -> object:  # type: ignore[override]
            reading.set()
            await asyncio.Event().wait()

    _store, engine, ctx = await begun(Late)
    async with ctx.turn() as turn, turn.iteration() as cycle:
        call = cycle.provider_call("m")
        ctx._session.bodies.clear()
        asking = asyncio.create_task(ctx.get_messages_for_request(call=call))
        await reading.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert await provider_events(engine) == ["provider:request", "provider:error"]


async def test_an_event_that_nothing_follows_goes_by_itself_or_with_who_reads_the_log() -> None:
    store, engine, ctx = await begun(CountingStore)
    began = asyncio.get_running_loop().time()
    await ctx.emit(PlanStart())
    assert store.appends == []
    async with asyncio.timeout(60):
        async for record in store.subscribe(stream="s", after=1):
            assert record.type == "plan:start"
            break
    assert asyncio.get_running_loop().time() - began >= IDLE_SECONDS * 0.9
    await ctx.emit(PlanStart())
    assert (await names(engine))[2:] == ["plan:start"] * 2


async def test_only_so_many_ride_and_one_that_cannot_be_written_fails_the_next_call() -> None:
    store, engine, ctx = await begun(CountingStore)
    for _ in range(MAX_DEFERRED + 1):
        await ctx.emit(PlanStart())
    assert list(map(len, store.appends)) == [MAX_DEFERRED + 1]
    before = await names(engine)
    store.full = True
    await ctx.emit(PlanStart())
    with pytest.raises(StoreFull):
        await ctx.add_message(ANSWER)
    store.full = False
    await ctx.add_message(ANSWER)
    await ctx.emit(PlanEnd())
    await ctx.close()
    types = [one.type async for one in store.read("s", start=len(before))]
    assert types == ["plan:start", "context:message_added", "plan:end"]


STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["emit", "add", "request"])), max_size=14
)


@given(STEPS)
@settings(max_examples=some(20, 40), deadline=None)
async def test_two_processes_keep_each_their_order_and_one_view(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("riding") / "store.db"
    async with opened_file(path) as first, opened_file(path) as second:
        contexts = {"a": await first.session("s"), "b": await second.session("s")}
        for number, (who, step) in enumerate(steps):
            if step == "emit":
                await contexts[who].emit(PlanStart(name=f"{who}{number}"))
            elif step == "add":
                await contexts[who].add_message({"role": "user", "content": f"{who}{number}"})
            else:
                await contexts[who].get_messages_for_request()
    async with opened_file(path) as engine:
        records = [record async for record in engine.records("s", bodies=True)]
        named = [str(one.payload) + str(one.bodies) for one in records]
        for who in "ab":
            wanted = [f'"{who}{at}"' for at, one in enumerate(steps) if one == (who, "emit")]
            places = [next(i for i, text in enumerate(named) if one in text) for one in wanted]
            assert places == sorted(places)
        emitted = [one for one in steps if one[1] == "emit"]
        assert [one.type for one in records].count("plan:start") == len(emitted)
        await prove(engine)


def opened_file(path: Path, **options: Any) -> AbstractAsyncContextManager[Engine]:
    return eventctx.open(path, receipts=False, **options)


async def test_what_rides_keeps_its_times_behind_another_process(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    now = iter(range(1_000, 100_000, 1_000))
    async with (
        opened_file(path, clock=lambda: next(now)) as engine,
        opened_file(path, clock=lambda: 1) as other,
    ):
        ctx = await engine.session("s")
        await (await other.session("s")).add_message(USER)
        for number in range(3):
            await ctx.emit(PlanStart(name=str(number)))
        await ctx.add_message(ANSWER)
        records = [record async for record in engine.records("s")]
    times = [record.time for record in records if record.type == "plan:start"]
    assert [later - earlier for earlier, later in pairwise(times)] == [1_000, 1_000]


async def test_the_end_of_a_turn_goes_by_itself_also_behind_another_process(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened_file(path) as engine, opened_file(path) as other:
        ctx = await engine.session("s")
        async with ctx.turn():
            await engine.verify("s")  # nothing is deferred any more, and no timeout is set
            await asyncio.sleep(2 * IDLE_SECONDS)
            await (await other.session("s")).add_message(USER)
        async with asyncio.timeout(60):
            async for record in other.store.subscribe(stream="s"):
                if record.type == "prompt:complete":
                    break


async def test_a_backup_a_signature_and_the_engines_end_hold_what_rides(tmp_path: Path) -> None:
    key = signing_key()
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with opened_file(path) as engine:
        ctx = await engine.session("s")
        await ctx.emit(PlanStart())
        await engine.backup(copy)
        async with opened_file(copy) as copied:
            assert await names(copied) == ["session:start", "plan:start"]
        await ctx.emit(PlanStart())
        assert (await engine.sign("s", key)).position == 3
        before = await names(engine)
        await engine.close_session("s")
        await ctx.emit(PlanStart())  # in a session that was closed
    async with opened_file(path) as engine:
        assert await names(engine) == [*before, "plan:start"]


@pytest.mark.slow
def test_a_loop_that_ends_while_something_goes_by_itself_complains_of_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(CountingStore):
        def waited_for(
            self, drafts: Sequence[Draft], ack: Awaitable[Appended]
        ) -> Awaitable[Appended]:
            return _later(ack) if drafts[0].type == "plan:start" else ack

    async def program() -> None:
        ctx = await Engine(Slow()).session("s")
        await ctx.emit(PlanStart())
        await asyncio.sleep(2 * IDLE_SECONDS)

    asyncio.run(program())
    gc.collect()
    assert caplog.messages == []


async def _later(done: Awaitable[Appended]) -> Appended:
    await asyncio.sleep(3600)
    return await done


def test_an_engine_that_was_dropped_while_something_rides_keeps_no_store() -> None:
    async def program() -> ref[CountingStore]:
        store, _, ctx = await begun(CountingStore)
        await ctx.emit(PlanStart())
        return ref(store)

    store = asyncio.run(program())
    gc.collect()  # the engine, which writes deferred events in a thread of its own
    for thread in threading.enumerate():
        if thread.name == "eventctx-flush":
            thread.join(60)
    gc.collect()
    assert store() is None


def test_what_rides_goes_by_itself_while_another_loop_stands_still() -> None:
    async def begins() -> tuple[Engine, eventctx.Context]:
        engine, ctx = await opened()
        await ctx.emit(PlanStart(name="there"))
        return engine, ctx

    async def goes_on(engine: Engine, ctx: eventctx.Context) -> None:
        await ctx.emit(PlanStart(name="here"))
        async with asyncio.timeout(60):
            async for _ in engine.store.subscribe(stream="s", after=1):
                break

    stands_still = asyncio.new_event_loop()
    asyncio.run(goes_on(*stands_still.run_until_complete(begins())))
    stands_still.close()


class Held(CountingStore):
    """A store whose appends are acknowledged when ``release`` is called, if ``holds``.

    If it ``refuses``, it keeps nothing of what it holds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.holds = self.refuses = False
        self.took = asyncio.Event()
        self._held: list[tuple[Ack[Appended], Awaitable[Appended]]] = []

    def append(self, stream: str, *rest: Any) -> Awaitable[Appended]:
        done = Ack[Appended]() if self.refuses and self.holds else super().append(stream, *rest)
        if not self.holds:
            return done
        self._held.append((Ack(), done))
        self.took.set()
        return self._held[-1][0]

    async def release(self, error: Exception | None = None) -> None:
        """Acknowledge all, the last one first."""
        self.holds = False
        for ack, done in reversed(self._held):
            settle([(ack, None, error) if error else (ack, await done, None)])
            await asyncio.sleep(0)


async def test_a_call_that_is_cancelled_on_its_requests_way_to_the_disk_has_an_end() -> None:
    store, engine, ctx = await begun(Held)
    async with ctx.turn() as turn, turn.iteration() as cycle:
        store.holds = True
        asking = asyncio.create_task(ctx.get_messages_for_request(call=cycle.provider_call("m")))
        await store.took.wait()
        asking.cancel()
        await asyncio.sleep(0)
        await store.release()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert await provider_events(engine) == ["provider:request", "provider:error"]


TURNS = MAX_IN_FLIGHT + 8


async def ends_behind_a_slow_disk() -> list[int]:
    """How often each turn ended, of so many that are cancelled while the queue has no room."""
    store = Held()
    engine, ctx = await opened(store=store)
    inside, leave = asyncio.Semaphore(0), asyncio.Event()

    async def turn() -> None:
        async with ctx.turn():
            inside.release()
            await leave.wait()

    turns = [asyncio.create_task(turn()) for _ in range(TURNS)]
    for _ in turns:
        await inside.acquire()
    store.holds = True
    leave.set()
    for _ in range(5):  # all have left, and those for which there is no room wait
        await asyncio.sleep(0)
    for one in turns:
        one.cancel()
    await asyncio.sleep(0)
    await store.release()
    await asyncio.wait(turns)
    await engine.close_session("s")
    ends = Counter([one.turn_id async for one in store.read("s") if one.type == "prompt:complete"])
    return [ends[one.turn_id] async for one in store.read("s") if one.type == "prompt:submit"]


async def test_a_turn_that_is_cancelled_behind_a_slow_disk_ends_once() -> None:
    assert await ends_behind_a_slow_disk() == [1] * TURNS


async def test_what_is_sent_again_keeps_its_order_whichever_failure_is_heard_first() -> None:
    store, engine, ctx = await begun(Held)
    store.holds = store.refuses = True
    for number in range(2 * (MAX_DEFERRED + 1)):
        await ctx.emit(PlanStart(name=str(number)))
    await asyncio.sleep(0)
    await store.release(StoreFull("the disk is full"))
    await ctx.add_message(ANSWER)
    records = [one async for one in engine.records("s") if one.type == "plan:start"]
    found = [getattr(decode_event(one), "name", None) for one in records]
    assert found == [str(number) for number in range(2 * (MAX_DEFERRED + 1))]


def test_an_engine_that_is_dropped_in_the_middle_of_its_stores_work_waits_for_no_lock() -> None:
    store = MemoryStore()

    async def ride() -> None:
        ctx = await Engine(store).session("s")
        await ctx.add_message(USER)
        await ctx.emit(PlanStart())

    def drop() -> None:
        asyncio.run(ride())
        # A collection of garbage may begin anywhere, also here.
        with store._lock:
            gc.collect()

    dropping = threading.Thread(target=drop, daemon=True)
    dropping.start()
    dropping.join(60)
    assert not dropping.is_alive()
