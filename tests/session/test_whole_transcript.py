"""The whole transcript from memory: it is that of the log, and what an answer reads and holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine, open_engine
from eventctx.errors import ContextOverflow, InvalidSetting, WrongExpectedVersion
from eventctx.log.events import PlanStart
from eventctx.log.store import EventStore
from eventctx.session.contents import MAX_ROW_BYTES, MAX_UNASKED
from eventctx.stores.memory import MemoryStore
from eventctx.stores.sqlite import SqliteStore
from tests.how_much import some
from tests.session.counting_store import CountingStore
from tests.session.given import opened
from tests.sessions import USER, tool_round, user

SIZES = {"say": 3, "round": 3, "set": 9, "resume": 9, "erase": 9, "restore": 9, "fork": 20}
OTHERS = ["get", "get", "clear", "request", "compact", "emit", "let go", "meanwhile"]
SIZED = [st.tuples(st.just(what), st.integers(0, most)) for what, most in SIZES.items()]
ANY_STEP = st.one_of(*SIZED, st.tuples(st.sampled_from(OTHERS), st.just(0)))
STEPS = st.lists(st.tuples(st.sampled_from(["one", "two"]), ANY_STEP), min_size=3, max_size=30)

Step = tuple[str, tuple[str, int]]


class Play:
    """Two engines on one store, as two processes are, and what they do with one session."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.engines = {name: Engine(store, most_open_sessions=1) for name in ("one", "two")}
        self.session = "s"
        self.forks = 0

    async def context(self, name: str) -> eventctx.Context:
        engine = self.engines[name]
        return await engine.session(self.session, policy="truncate", keep_recent=2, max_tokens=900)

    async def do(self, place: int, name: str, what: str, value: int) -> None:
        ctx = await self.context(name)
        match what:
            case "say":
                await ctx.add_message(user(f"said {place}" * value))
            case "round":
                await ctx.add_messages(tool_round(place, 200 * value))
            case "set" | "resume":
                rows = await ctx.get_messages()
                new = user(f"{place}")
                # One message goes and another comes at the end, or one comes in between.
                given = [*rows[:value], *rows[value + 1 :], new]
                if value >= 5:
                    given = [*rows[: value - 5], new, *rows[value - 5 :]]
                await (ctx.set_messages if what == "set" else ctx.resume_messages)(given)
            case "clear":
                await ctx.clear()
            case "restore":
                await ctx.restore(value)
            case "request":
                with suppress(ContextOverflow):
                    await ctx.get_messages_for_request()
            case "compact":
                await ctx.compact(budget=500)
            case "emit":
                await ctx.emit(PlanStart())
            case "meanwhile":
                await self.meanwhile(ctx, place)
            case _:
                await self.do_with(self.engines[name], name, what, value)

    async def do_with(self, engine: Engine, name: str, what: str, value: int) -> None:
        match what:
            case "erase":
                await engine.erase(self.session, [value])
            case "fork":
                self.forks += 1
                await engine.fork(self.session, value, f"f{self.forks}")
                self.session = f"f{self.forks}"
            case "let go":
                await (await engine.session("another")).add_message(USER)
            case "get":
                await self.compare(name)

    async def meanwhile(self, ctx: eventctx.Context, place: int) -> None:
        """Ask while messages are added: those that were acknowledged before are in the answer."""
        rows = [user(f"meanwhile {place} {n}") for n in range(3)]
        await ctx.add_message(rows[0])
        _, found, _ = await asyncio.gather(
            ctx.add_message(rows[1]), ctx.get_messages(), ctx.add_message(rows[2])
        )
        assert rows[0] in found

    async def compare(self, name: str) -> None:
        found = await (await self.context(name)).get_messages()
        assert found == await (await Engine(self.store).session(self.session)).get_messages()
        assert found == [
            user("[erased]") if one.message is None else one.message
            for one in await Engine(self.store).transcript(self.session)
        ]
        for row in found:
            row.clear()  # reaches no later answer


async def played(steps: Sequence[Step], store: EventStore) -> None:
    play = Play(store)
    for place, (name, (what, value)) in enumerate(steps):
        # What the other engine wrote is unseen until a caller looks, and a number may be gone.
        with suppress(WrongExpectedVersion, InvalidSetting):
            await play.do(place, name, what, value)
    for name in play.engines:
        await play.compare(name)


EXAMPLES: list[list[Step]] = [
    [("one", ("say", 1)), ("one", ("get", 0)), ("two", ("say", 2)), ("one", ("get", 0))],
    [("one", ("round", 1)), ("one", ("get", 0)), ("two", ("erase", 0)), ("one", ("get", 0))],
    [("one", ("round", 1)), ("one", ("get", 0)), ("one", ("erase", 1)), ("one", ("say", 1))],
    [("one", ("say", 1)), ("one", ("get", 0)), ("one", ("set", 0)), ("one", ("clear", 0))],
    [("one", ("say", 1)), ("one", ("fork", 1)), ("two", ("get", 0)), ("one", ("erase", 0))],
    [("one", ("say", 1)), ("one", ("get", 0)), ("two", ("say", 1)), ("one", ("meanwhile", 0))],
    [("one", ("round", 1)), ("one", ("get", 0)), ("one", ("set", 6)), ("one", ("get", 0))],
    [
        *[("one", ("say", 1)), ("one", ("get", 0)), ("two", ("say", 2)), ("one", ("restore", 0))],
        *[("one", ("say", 3)), ("one", ("get", 0))],
    ],
]


@settings(deadline=None, max_examples=some(30, 120), suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
async def test_it_equals_what_a_new_engine_reads(steps: list[Step]) -> None:
    await played(steps, MemoryStore())


@pytest.mark.parametrize("steps", EXAMPLES)
async def test_it_equals_what_a_new_engine_reads_of_a_file(
    steps: list[Step], tmp_path: Path
) -> None:
    await played(steps, MemoryStore())
    store = await SqliteStore.open(tmp_path / "s.db")
    await played(steps, store)
    await store.close()


# -- what an answer reads, writes and holds ------------------------------------------------------


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
