"""The whole transcript from memory: it is that of the log, whatever happened."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import ContextOverflow, InvalidSetting, WrongExpectedVersion
from eventctx.log.events import PlanStart
from eventctx.log.store import EventStore
from eventctx.stores.memory import MemoryStore
from eventctx.stores.sqlite import SqliteStore
from tests.how_much import some
from tests.session.given import texts
from tests.sessions import USER, tool_round, user

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["one", "two"]),
        st.one_of(
            *[
                st.tuples(st.just(what), st.integers(0, most))
                for what, most in (
                    *(("say", 3), ("round", 3), ("set", 9), ("resume", 9), ("erase", 9)),
                    *(("restore", 9), ("fork", 20), ("get", 0), ("get", 0), ("clear", 0)),
                    *(("request", 0), ("compact", 0), ("emit", 0), ("let go", 0)),
                    ("meanwhile", 0),
                )
            ],
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
async def test_it_equals_what_a_new_engine_reads_of_memory_and_a_file(
    steps: list[Step], tmp_path: Path
) -> None:
    await played(steps, MemoryStore())
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
                await ctx.add_message(user(f"{name} {number}"))
                mine = [one for one in texts(await ctx.get_messages()) if one.startswith(name)]
                assert mine == [f"{name} {n}" for n in range(number + 1)]

        names = ("one", "two", "three")
        runs = [asyncio.to_thread(asyncio.run, adds_and_asks(name)) for name in names]
        await asyncio.gather(*runs, adds_and_asks("here"))
        found = await ctx.get_messages()
        assert found == await (await Engine(engine.store).session("s")).get_messages()
        assert len(found) == 160
