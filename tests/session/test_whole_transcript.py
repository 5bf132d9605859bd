"""The whole transcript from memory: what it costs, what it holds, and that it is never another."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import ContextOverflow, InvalidSetting, StoreFull, WrongExpectedVersion
from eventctx.log.events import PlanStart
from eventctx.log.store import EventStore
from eventctx.session.transcript_lines import MAX_ROW_BYTES, MAX_UNASKED
from eventctx.stores.memory import MemoryStore
from eventctx.stores.sqlite import SqliteStore
from tests.sessions import USER, tool_round

# -- it is the transcript of the log, whatever happened ---------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["one", "two"]),
        st.one_of(
            st.tuples(st.just("say"), st.integers(0, 3)),
            st.tuples(st.just("round"), st.integers(0, 3)),
            st.tuples(st.just("set"), st.integers(0, 9)),
            st.tuples(st.just("resume"), st.integers(0, 9)),
            st.tuples(st.just("erase"), st.integers(0, 9)),
            st.tuples(st.just("restore"), st.integers(0, 9)),
            st.tuples(st.just("fork"), st.integers(0, 20)),
            st.tuples(
                st.sampled_from(
                    ["get", "get", "clear", "request", "compact", "emit", "let go", "meanwhile"]
                ),
                st.just(0),
            ),
        ),
    ),
    min_size=3,
    max_size=30,
)

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
                await ctx.add_message({"role": "user", "content": f"said {place}" * value})
            case "round":
                for message in tool_round(place, 200 * value):
                    await ctx.add_message(message)
            case "set" | "resume":
                rows = await ctx.get_messages()
                new = {"role": "user", "content": f"{place}"}
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
        rows = [{"role": "user", "content": f"meanwhile {place} {n}"} for n in range(3)]
        await ctx.add_message(rows[0])
        _, found, _ = await asyncio.gather(
            ctx.add_message(rows[1]), ctx.get_messages(), ctx.add_message(rows[2])
        )
        assert rows[0] in found

    async def compare(self, name: str) -> None:
        found = await (await self.context(name)).get_messages()
        assert found == await (await Engine(self.store).session(self.session)).get_messages()
        assert found == [
            one.message if one.message is not None else {"role": "user", "content": "[erased]"}
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
        ("one", ("say", 1)),
        ("one", ("get", 0)),
        ("two", ("say", 2)),
        ("one", ("restore", 0)),
        ("one", ("say", 3)),
        ("one", ("get", 0)),
    ],
]


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@example(steps=EXAMPLES[0])
@example(steps=EXAMPLES[1])
@example(steps=EXAMPLES[2])
@example(steps=EXAMPLES[3])
@example(steps=EXAMPLES[4])
@example(steps=EXAMPLES[5])
@example(steps=EXAMPLES[6])
@example(steps=EXAMPLES[7])
@given(steps=STEPS)
def test_it_equals_what_a_new_engine_reads(steps: list[Step]) -> None:
    asyncio.run(played(steps, MemoryStore()))


@pytest.mark.parametrize("steps", EXAMPLES)
async def test_it_equals_what_a_new_engine_reads_of_a_file(
    steps: list[Step], tmp_path: Path
) -> None:
    store = await SqliteStore.open(tmp_path / "s.db")
    await played(steps, store)
    await store.close()


async def test_threads_that_add_and_ask_find_what_was_acknowledged_to_them(
    tmp_path: Path,
) -> None:
    async with eventctx.open(tmp_path / "s.db") as engine:
        ctx = await engine.session("s")

        async def adds_and_asks(name: str) -> None:
            for number in range(40):
                await ctx.add_message({"role": "user", "content": f"{name} {number}"})
                found = [row["content"] for row in await ctx.get_messages()]
                mine = [text for text in found if text.startswith(name)]
                assert mine == [f"{name} {n}" for n in range(number + 1)]

        names = ("one", "two", "three")
        runs = [asyncio.to_thread(asyncio.run, adds_and_asks(name)) for name in names]
        await asyncio.gather(*runs, adds_and_asks("here"))
        assert (
            await ctx.get_messages()
            == await (await Engine(engine.store).session("s")).get_messages()
        )
        assert len(await ctx.get_messages()) == 160


OTHER = """
import asyncio, sys
import eventctx

async def main():
    async with eventctx.open(sys.argv[1]) as engine:
        ctx = await engine.session("s")
        for line in sys.stdin:
            what, _, text = line.strip().partition(" ")
            if what == "say":
                await ctx.add_message({"role": "user", "content": text})
            elif what == "erase":
                await engine.erase("s", [int(text)])
            else:
                await ctx.set_messages((await ctx.get_messages())[1:])
            print("done", flush=True)

asyncio.run(main())
"""


async def test_what_another_process_did_is_in_the_next_answer(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s")
        for text in ("first", "second", "third"):
            await ctx.add_message({"role": "user", "content": text})
        with subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-c", OTHER, path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as other:  # fmt: skip
            assert other.stdin is not None
            assert other.stdout is not None
            answers = []
            for command in ("say fourth", "erase 1", "drop first", "say fifth"):
                await ctx.get_messages()
                print(command, file=other.stdin, flush=True)
                assert await asyncio.to_thread(other.stdout.readline) == "done\n"
                answers.append([row["content"] for row in await ctx.get_messages()])
            other.stdin.close()
        assert answers == [
            ["first", "second", "third", "fourth"],
            ["first", "[erased]", "third", "fourth"],
            ["[erased]", "third", "fourth"],
            ["[erased]", "third", "fourth", "fifth"],
        ]


# -- what it reads, writes and holds ----------------------------------------------------------


class Counting(MemoryStore):
    """A store that counts what is asked of it, apart from peeks; its disk may be full."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.full = False

    def append(self, *args: Any) -> Any:
        self.calls.append("append")
        if self.full:
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            done.set_exception(StoreFull("no space left on the disk"))
            return done
        return super().append(*args)

    def read(self, *args: Any, **options: Any) -> Any:
        self.calls.append("read")
        return super().read(*args, **options)

    async def bodies(self, *args: Any) -> Any:
        self.calls.append("bodies")
        return await super().bodies(*args)

    async def head(self, *args: Any) -> Any:
        self.calls.append("head")
        return await super().head(*args)


async def test_the_second_answer_reads_and_writes_nothing() -> None:
    store = Counting()
    ctx = await Engine(store).session("s")
    await ctx.add_message(USER)
    await ctx.get_messages()
    for message in tool_round(1):
        await ctx.add_message(message)
    await ctx.set_messages([USER, *tool_round(2)])
    await ctx.get_messages_for_request()
    store.calls.clear()
    assert await ctx.get_messages() == [USER, *tool_round(2)]
    await ctx.clear()
    assert await ctx.get_messages() == []
    await ctx.add_message(USER)
    assert await ctx.get_messages() == [USER]
    assert store.calls == ["append", "append"]


async def test_a_token_count_reads_and_writes_nothing_either() -> None:
    store = Counting()
    ctx = await Engine(store).session("s")
    await ctx.add_message(USER)
    before = await ctx.get_token_count()
    await ctx.add_message(tool_round(1)[0])
    store.calls.clear()
    assert await ctx.get_token_count() > before
    assert store.calls == []


async def test_behind_another_writer_only_its_messages_are_read() -> None:
    store = Counting()
    ctx = await Engine(store).session("s")
    for message in (USER, *tool_round(1)):
        await ctx.add_message(message)
    await ctx.get_messages()
    read: list[int] = []
    bodies = store.bodies

    async def noting(stream: str, addresses: Sequence[Any]) -> Any:
        read.append(len(addresses))
        return await bodies(stream, addresses)

    store.bodies = noting  # type: ignore[method-assign]
    other = await Engine(store).session("s")
    await other.add_message({"role": "user", "content": "mine"})
    assert len(await ctx.get_messages()) == 4
    assert read == [1]


class HeadOnly(Counting):
    """Another people's store, which offers no peek."""

    peek = None  # type: ignore[assignment]


async def test_a_store_without_a_peek_is_asked_for_its_head() -> None:
    store = HeadOnly()
    ctx = await Engine(store).session("s")
    await ctx.add_message(USER)
    await ctx.get_messages()
    store.calls.clear()
    assert await ctx.get_messages() == [USER]
    assert store.calls == ["head"]
    await (await Engine(store).session("s")).add_message(USER)
    assert await ctx.get_messages() == [USER, USER]


async def test_a_message_that_was_not_written_is_in_no_answer() -> None:
    store = Counting()
    ctx = await Engine(store).session("s")
    await ctx.add_message(USER)
    await ctx.get_messages()
    store.full = True
    with pytest.raises(StoreFull):
        await ctx.add_message({"role": "user", "content": "lost"})
    assert await ctx.get_messages() == [USER]
    store.full = False
    await ctx.add_message({"role": "user", "content": "kept"})
    assert [row["content"] for row in await ctx.get_messages()] == ["hello", "kept"]


class Slow(Counting):
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
    ctx = await Engine(store).session("s")
    await ctx.add_message(USER)
    await ctx.get_messages()
    store.go.clear()
    asking = asyncio.create_task(ctx.get_messages())
    adding = asyncio.create_task(ctx.add_message({"role": "user", "content": "under way"}))
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
    engine = Engine(store)
    ctx = await engine.session("s")
    await ctx.add_message({"role": "user", "content": "secret"})
    asking = asyncio.create_task(ctx.get_messages())
    await store.read_once.wait()
    await engine.erase("s", [0])
    store.go.set()
    await asking
    assert ctx._session.lines.row_bytes == 0
    assert await ctx.get_messages() == [{"role": "user", "content": "[erased]"}]


async def test_its_memory_is_counted_and_let_go_when_nobody_asks_any_more() -> None:
    ctx = await Engine(MemoryStore()).session("s")
    text = "x" * 1_000
    for _ in range(200):
        await ctx.add_message({"role": "user", "content": text})
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


@pytest.mark.parametrize("size", [0, 1_000])
async def test_it_holds_no_more_than_it_counts(size: int, tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "s.db")
    ctx = await Engine(store).session("s")
    rows = [{"role": "user", "content": f"{number}" + "x" * size} for number in range(600)]
    await asyncio.gather(*[ctx.add_message(row) for row in rows])
    ctx = await Engine(store).session("s")
    session = ctx._session
    await session.appends.settled()
    gc.collect()
    tracemalloc.start()
    try:
        counted = session.bytes_held
        await ctx.get_messages()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        assert held < (session.bytes_held - counted) * 1.1 + 50_000
    finally:
        tracemalloc.stop()
    await store.close()


async def test_what_is_erased_leaves_the_memory_at_once() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    await ctx.add_message({"role": "user", "content": "secret"})
    await ctx.get_messages()
    await engine.erase("s", [0])
    assert ctx._session.lines.row_bytes == 0


async def test_a_session_that_is_let_go_lets_go_its_transcript() -> None:
    engine = Engine(MemoryStore(), most_open_sessions=1)
    ctx = await engine.session("s")
    await ctx.add_message(USER)
    await ctx.get_messages()
    await (await engine.session("another")).add_message(USER)
    assert ctx._session.lines.bytes_held == 0
    assert await ctx.get_messages() == [USER]


async def test_a_transcript_over_the_bound_is_answered_and_not_held() -> None:
    ctx = await Engine(MemoryStore()).session("s")
    half = {"role": "user", "content": "x" * (MAX_ROW_BYTES // 2)}
    await ctx.add_message(half)
    await ctx.get_messages()
    assert ctx._session.lines.row_bytes > 0
    await ctx.add_message(half)
    assert ctx._session.lines.row_bytes == 0
    assert len(await ctx.get_messages()) == 2
    assert ctx._session.lines.row_bytes == 0
