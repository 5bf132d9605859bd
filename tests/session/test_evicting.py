"""Evicted sessions: how much memory stays, and that no caller can tell the difference."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import (
    CompactionRefused,
    ContextOverflow,
    InvalidSetting,
    WrongExpectedVersion,
)
from eventctx.hooks.sinks import History
from eventctx.log.events import PlanStart
from eventctx.log.record import Record
from eventctx.messages.encoding import encode_message
from eventctx.session import aggregate
from eventctx.stores.memory import MemoryStore
from eventctx.testing import FixedClock, FixedRandom
from tests.how_much import some
from tests.session.counting_store import CountingStore
from tests.session.given import records_of, result, texts, until_tools_run
from tests.sessions import USER, names, tool_round, user

SIZES = {
    "say": 600,
    "round": 2_000,
    "think": 400,
    "result": 3,
    "call": 3,
    "set": 9,
    "prompt": 1,
    "request": 2_000,
    "sent": 1,
}
OTHERS = ["clear", "compact", "pin", "restore", "turn", "host turn", "emit", "drop"]
SIZED = [st.tuples(st.just(what), st.integers(0, most)) for what, most in SIZES.items()]
ANY_STEP = st.one_of(*SIZED, st.tuples(st.sampled_from(OTHERS), st.just(0)))
STEPS = st.lists(st.tuples(st.sampled_from("abc"), ANY_STEP), min_size=4, max_size=40)

Step = tuple[str, tuple[str, int]]


class Folding:
    """A sink that folds: it notes every record that it is told, live or by catching up."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int]] = []

    def __call__(self, record: Record) -> None:
        self.told.append(("live", record.stream, record.position))

    def resume(self, records: Iterable[Record]) -> None:
        self.told += [("resumed", one.stream, one.position) for one in records]

    def history(self) -> History:
        return "records"


class Play:
    """Three sessions of one engine, and the steps that are done with them, by turns."""

    def __init__(self, **bounds: int) -> None:
        self.sink = Folding()
        self.engine = Engine(
            MemoryStore(), sinks=[self.sink], clock=FixedClock(), random=FixedRandom(), **bounds
        )
        self.contexts: dict[str, eventctx.Context] = {}
        self.turns: dict[str, eventctx.Turn] = {}
        self.following: dict[str, Any] = {}
        self.sent: list[bytes] = []

    async def context(self, name: str) -> eventctx.Context:
        if name not in self.contexts:
            options: dict[str, Any] = {"policy": "truncate", "keep_recent": 2, "max_tokens": 900}
            self.contexts[name] = await self.engine.session(name, **options)
        return self.contexts[name]

    async def do(self, place: int, name: str, what: str, value: int) -> None:
        ctx = await self.context(name)
        match what:
            case "sent":
                await ctx.record_sent(0, 1, [(0, user(f"hint {value}"))])
            case "compact":
                await ctx.compact(budget=500)
            case "pin" | "restore":
                count = len(await ctx.get_messages())
                if count:
                    await getattr(ctx, what)(count - 1 if what == "pin" else 0)
            case "turn":
                await self.turn(name, ctx)
            case "host turn":
                await self.host_turn(name, ctx)
            case "emit":
                await ctx.emit(PlanStart())
            case "drop":
                if name not in self.following:
                    del self.contexts[name]
            case _:
                await self.change(ctx, place, what, value)

    async def change(self, ctx: eventctx.Context, place: int, what: str, value: int) -> None:
        match what:
            case "say":
                await ctx.add_message(user(f"say {place} " + "x" * value))
            case "round":
                await ctx.add_messages(tool_round(place, value))
            case "think":
                thought = {"type": "thinking", "thinking": "t" * value, "signature": "c2ln"}
                text = {"type": "text", "text": "y" * value}
                await ctx.add_message({"role": "assistant", "content": [thought, text]})
            case "call" | "result":
                await ctx.add_message(tool_round(value)[what == "result"])
            case "set":
                rows = await ctx.get_messages()
                await ctx.set_messages([*rows[:value], *rows[value + 1 :], USER])
            case "clear":
                await ctx.clear()
            case "prompt":
                await ctx.set_system_prompt(f"prompt {value}")
            case "request":
                with contextlib.suppress(ContextOverflow):
                    rows = await ctx.get_messages_for_request(300 + value)
                    self.sent.append(encode_message({"rows": rows}))

    async def turn(self, name: str, ctx: eventctx.Context) -> None:
        turn = self.turns.pop(name, None)
        if turn is None:
            turn = self.turns[name] = await ctx.turn().__aenter__()
            await ctx.add_message(USER)
            return
        async with turn.iteration() as cycle:
            with contextlib.suppress(ContextOverflow):
                await ctx.get_messages_for_request()
            async with cycle.provider_call("claude-sonnet-4-5") as call:
                await call.usage(100, 10)
        await turn.__aexit__(None, None, None)

    async def host_turn(self, name: str, ctx: eventctx.Context) -> None:
        if name in self.following:
            await self.following.pop(name).turn_ended()
        else:
            self.following[name] = ctx.following()
            await self.following[name].turn_began()

    async def outcome(self) -> tuple[Any, ...]:
        logs, transcripts = {}, {}
        for name in {one.stream for one in await self.engine.sessions()}:
            logs[name] = [one.digest async for one in self.engine.records(name)]
            transcripts[name] = await self.engine.transcript(name)
        await self.engine.close()
        # Records of one session are told in order; how sessions take turns is the event loop's.
        told = {name: [one for one in self.sink.told if one[1] == name] for name in "abc"}
        return logs, transcripts, self.sent, told


async def played(steps: Sequence[Step], **bounds: int) -> tuple[Any, ...]:
    play = Play(**bounds)
    for place, (name, (what, value)) in enumerate(steps):
        try:
            await play.do(place, name, what, value)
        except (InvalidSetting, CompactionRefused) as error:  # as it is, wherever the state lies
            play.sent.append(repr(error).encode())
    return await play.outcome()


@settings(deadline=None, max_examples=some(20, 60), suppress_health_check=[HealthCheck.too_slow])
@example(steps=[("a", ("call", 1)), ("a", ("think", 9)), ("b", ("say", 1)), ("a", ("result", 1))])
@example(steps=[("a", ("turn", 0)), ("b", ("say", 9)), ("a", ("turn", 0)), ("b", ("turn", 0))])
@example(steps=[("a", ("sent", 1)), ("a", ("drop", 0)), ("b", ("say", 9)), ("a", ("sent", 1))])
@example(
    steps=[
        *[("b", ("say", 0)), ("a", ("say", 0)), ("b", ("emit", 0)), ("b", ("round", 0))],
        ("a", ("say", 0)),
    ]
)
@example(steps=[("a", ("say", 0)), ("b", ("call", 3)), ("a", ("say", 0)), ("b", ("round", 0))])
@given(steps=STEPS)
def test_an_eviction_changes_no_record_request_or_report(steps: list[Step]) -> None:
    freely = asyncio.run(played(steps, most_open_sessions=1_000))
    assert asyncio.run(played(steps, most_open_sessions=1)) == freely
    assert asyncio.run(played(steps, open_session_bytes=1)) == freely


async def evict(engine: Engine, ctx: eventctx.Context) -> None:
    """Use another session, so that an engine that keeps one evicts ``ctx``."""
    await (await engine.session("another")).add_message(USER)
    assert ctx._session.aggregate.view_if_held is None


async def test_a_message_is_added_to_a_session_without_loading_it() -> None:
    store = CountingStore()
    async with Engine(store, most_open_sessions=1) as engine:
        ctx = await engine.session("s")
        await ctx.add_message(USER)
        await evict(engine, ctx)
        store.calls.clear()
        for message in (USER, tool_round(1)[0]):
            await ctx.add_message(message)
        assert "read" not in store.calls
        await ctx.add_message(tool_round(1)[1])
        assert len(await ctx.get_messages_for_request()) == 4
        assert (await names(engine)).count("session:start") == 1


@pytest.mark.parametrize("answered", [False, True])
async def test_an_answer_is_kept_while_the_log_has_a_call_without_result_and_end(
    answered: bool,
) -> None:
    engine = Engine(MemoryStore(), most_open_sessions=1)
    host, ctx = await until_tools_run(engine, "a"), await engine.session("s")
    if answered:
        await ctx.add_message(result("b", "denied"))
    await names(engine)  # which writes what is deferred
    await evict(engine, ctx)
    await host.tool_ended("a", "of a")
    await engine.close_session("s")
    (post,) = await records_of(engine.store, kind="tool:post")
    assert len(post.bodies) == (not answered)


async def test_a_session_that_nobody_refers_to_goes_wholly_and_keeps_its_options() -> None:
    async with Engine(MemoryStore(), most_open_sessions=1) as engine:
        ctx = await engine.session("s", policy="truncate", max_tokens=500)
        await ctx.add_message(USER)
        before = weakref.ref(ctx), weakref.ref(ctx._session)
        await evict(engine, ctx)
        gc.disable()
        try:
            del ctx
            assert [one() for one in before] == [None, None]
        finally:
            gc.enable()
        again = await engine.session("s")
        assert (again.policy.name, again.settings.max_tokens) == ("truncate", 500)
        assert await again.get_messages() == [USER]
        with pytest.raises(InvalidSetting, match="is open with"):
            await engine.session("s", policy="ladder")
        await engine.close_session("s")
        assert (await engine.session("s", policy="ladder")).policy.name == "ladder"


async def test_what_another_process_wrote_stays_unseen_until_its_caller_looks() -> None:
    engine = Engine(MemoryStore(), most_open_sessions=1)
    ctx = await engine.session("s")
    await ctx.add_message(USER)
    await evict(engine, ctx)
    other = await Engine(engine.store).session("s")
    await other.add_message(user("not seen by the first one"))
    with pytest.raises(WrongExpectedVersion):
        await ctx.set_messages([])
    await evict(engine, ctx)
    assert len(await ctx.get_messages()) == 2
    await ctx.set_messages([])


async def test_a_session_with_an_event_that_is_not_written_is_never_evicted() -> None:
    store = CountingStore()
    async with Engine(store, most_open_sessions=1) as engine:
        ctx = await engine.session("s")
        store.full = True
        await ctx.emit(PlanStart())
        await ctx._session.appends.drain()
        del ctx
        store.full = False
        for name in ("another", "third"):
            await (await engine.session(name)).add_message(USER)
        await engine.close_session("s")
        assert "plan:start" in await names(engine)


async def test_sessions_in_use_at_once_lose_nothing_whoever_is_cancelled() -> None:
    async with Engine(MemoryStore(), most_open_sessions=1) as engine:
        contexts = {name: await engine.session(name, max_tokens=2_000) for name in "abcd"}

        async def work(name: str, number: int) -> None:
            ctx = contexts[name]
            await ctx.add_message(user(f"{number} " + "x" * 100))
            await asyncio.sleep(0)
            await ctx.get_messages_for_request()
            await ctx.get_messages()

        tasks = [asyncio.ensure_future(work(name, n)) for n in range(40) for name in "abcd"]
        for turn in range(30):
            await asyncio.sleep(0)
            tasks[turn * 5].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(one) for one in done} <= {type(None), asyncio.CancelledError}
        for name, ctx in contexts.items():
            rows = await ctx.get_messages()
            whole = {text.split()[0] for text in texts(rows)}
            finished = {str(n // 4) for n in range(160) if "abcd"[n % 4] == name and not done[n]}
            assert finished <= whole and len(rows) == len(whole)
            assert (await engine.verify(name)).ok


@pytest.mark.parametrize(
    ("bound", "size", "stay"),
    [({"most_open_sessions": 10}, 10, 10), ({"open_session_bytes": 10**6}, 200_000, 4)],
    ids=["number", "bytes"],
)
async def test_open_sessions_have_a_bound(bound: dict[str, int], size: int, stay: int) -> None:
    async with Engine(MemoryStore(), **bound) as engine:
        contexts = [await engine.session(str(n)) for n in range(20)]
        for ctx in contexts:
            await ctx.add_message(user("x" * size))
            await ctx.get_messages_for_request()
        held = [one for one in contexts if one._session.aggregate.view_if_held is not None]
        assert held == contexts[-stay:]
        assert sum(one._session.bytes_held for one in held) < 10**6


async def test_a_session_that_grew_in_its_last_use_goes_when_another_one_is_used() -> None:
    async with Engine(MemoryStore(), open_session_bytes=300_000) as engine:
        grown, other = await engine.session("grown"), await engine.session("other")
        for size in (10, 10, 400_000):
            await grown.add_message(user("x" * size))
        await other.add_message(USER)
        assert grown._session.aggregate.view_if_held is None


@pytest.mark.parametrize("bound", [0, -1, 1.5, "1", None])
@pytest.mark.parametrize("name", ["most_open_sessions", "open_session_bytes"])
def test_a_bound_that_is_no_positive_int_is_refused(name: str, bound: Any) -> None:
    with pytest.raises(InvalidSetting, match=f"{name}: expected an int from 1, found"):
        Engine(MemoryStore(), **{name: bound})


@pytest.mark.slow
async def test_messages_added_without_a_request_are_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate, "MAX_UNREAD", 1_024)
    count = 3 * 1_024
    async with eventctx.open(tmp_path / "s.db", durability="normal") as engine:
        ctx = await engine.session("s", max_tokens=10**9)
        await ctx.add_message(USER)
        most = 0
        for _ in range(0, count, 64):
            rows = [user(f"{n} " + "x" * 400) for n in range(64)]
            await asyncio.gather(*[ctx.add_message(row) for row in rows])
            most = max(ctx._session.bytes_held, most)
        assert most < 2 * 2**20
        assert len(await ctx.get_messages_for_request()) == count + 1
