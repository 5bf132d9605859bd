"""The kit: a host's runs, its list held against the transcript, rows as JSON, forks."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import warnings
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.adapters.kit import (
    GivenEngine,
    HostRun,
    HostSession,
    OpenSessions,
    ToolAround,
    ToolEnd,
    given_engine,
    held_against,
    plain_identity,
    tool_around,
)
from eventctx.adapters.kit.loops import engine_in_loop, run_in, wait_in
from eventctx.adapters.kit.recordable import recordable
from eventctx.engine import Engine
from eventctx.errors import ContextOverflow, InvalidMessage, InvalidSetting, StoreFull
from eventctx.log.codec import decode_known
from eventctx.messages.encoding import MAX_DEPTH, decode_body, encode_message
from eventctx.stores.memory import MemoryStore
from tests.adapters.logs import records_of
from tests.session.counting_store import CountingStore

ENDS = ("prompt:complete", "provider:response", "provider:error", "tool:post", "tool:error")


class Host:
    """One session of an engine that runs in a thread of its own."""

    def __init__(self, store: Path) -> None:
        self.given = GivenEngine(str(store), "tests")
        self.run = HostRun(self.given, self._opened)
        self._session: HostSession | None = None

    async def _opened(self) -> HostSession:
        if self._session is None:
            self._session = HostSession(await self.given.engine.session("s"))
        return self._session

    def turn(self) -> Any:
        async def begin(session: HostSession) -> None:
            await session.turns.turn_began()
            await session.mirror([{"role": "user", "content": "Go."}])

        async def over(session: HostSession, status: Any) -> None:
            await session.turns.turn_ended(status)

        return self.run.turn(begin, over)

    def call(self) -> Any:
        async def decide(session: HostSession) -> list[Any]:
            await session.turns.iteration_began(model="m")
            return await session.prepare()

        async def answered(session: HostSession, text: str) -> None:
            await session.turns.model_answered()
            await session.add([{"role": "assistant", "content": text}])

        return self.run.call(decide, answered)

    def ends(self) -> list[tuple[str, str]]:
        """The ends in the log, each with its status."""
        records = self.given.wait(records_of(self.given.engine))
        ends = [(one.type, decode_known(one)) for one in records if one.type in ENDS]
        return [(kind, str(getattr(event, "status", "ok"))) for kind, event in ends]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "log.db")
    yield made
    made.given.close()


async def test_a_step_ends_with_the_result_that_it_was_given(host: Host) -> None:
    asked = ToolAround("s", "c1", "s")
    async with host.turn() as turn:
        async with host.call() as call:
            assert call.begun == [{"role": "user", "content": "Go."}]
            call.ends_with("Done.")
        async with host.run.tool("look", "c1", asked) as tool:
            assert tool_around() == asked
            tool.ends_with(ToolEnd("seen"))
        assert tool_around() is None
        async with host.run.tool("look", "c2") as tool:
            tool.ends_with(ToolEnd("no", failure="LookupError"))
        with suppress(InterruptedError):  # as a tool asks a person
            async with host.run.tool("ask", "c3", waits=(InterruptedError,)):
                raise InterruptedError
        turn.ends_with("ok")
    assert host.ends() == [
        *[("provider:response", "ok"), ("tool:post", "ok"), ("tool:error", "error")],
        *[("tool:error", "cancelled"), ("prompt:complete", "ok")],
    ]


def test_a_host_without_a_loop_reports_by_plain_blocks(host: Host) -> None:
    with host.turn() as turn:
        with host.call() as call:
            call.ends_with("Done.")
        turn.ends_with("ok")
    assert host.ends() == [("provider:response", "ok"), ("prompt:complete", "ok")]


@pytest.mark.parametrize(
    "kind", [ValueError, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit]
)
async def test_a_step_an_exception_left_has_failed(host: Host, kind: type[BaseException]) -> None:
    """What somebody gave up was cancelled."""
    for step in (host.call, lambda: host.run.tool("look", "c1")):
        with suppress(kind):
            async with host.turn(), step():
                raise kind("unplugged")
    status = "error" if kind is ValueError else "cancelled"
    assert [one for one in host.ends() if one[1] != "ok"] == [
        *[("provider:error", status), ("prompt:complete", status)],
        *[("tool:error", status), ("prompt:complete", status)],
    ]
    records = host.given.wait(records_of(host.given.engine))
    told = [one.type for one in records if one.type in ENDS and b"unplugged" in one.payload]
    assert set(told) - {"prompt:complete"} == {"provider:error", "tool:error"}
    assert ("prompt:complete" in told) == (kind is ValueError)


class Held:
    closed = False

    def close(self) -> None:
        self.closed = True


async def opens() -> Held:
    await asyncio.sleep(0)
    return Held()


async def test_the_session_least_recently_used_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_engine, "MAX_SESSIONS", 2)
    sessions: OpenSessions[Held] = OpenSessions()
    first, second, again, third = [await sessions.of(name, opens) for name in "abac"]
    assert again is first
    assert [first.closed, second.closed, third.closed] == [False, True, False]
    assert await sessions.of("b", opens) is not second


async def test_a_session_is_made_once_also_where_two_calls_ask_for_it_at_once() -> None:
    made: list[Held] = []

    async def opened() -> Held:
        made.append(await opens())
        return made[-1]

    sessions: OpenSessions[Held] = OpenSessions()
    one, other = await asyncio.gather(sessions.of("s", opened), sessions.of("s", opened))
    assert one is other is await sessions.of("s", opened)
    assert [each.closed for each in made] == [each is not one for each in made]


def test_what_is_no_json_or_nested_too_deeply_stands_as_a_text_and_all_else_as_it_was() -> None:
    row = {"role": "user", "content": [{"type": "text", "text": "zażółć"}], "n": 1.5, "no": None}
    assert recordable(row) is row
    given: dict[Any, Any] = {
        "role": "user",
        "content": "half \ud800 of a pair",
        "arguments": {"nan": math.nan, "large": 2**70, "day": date(2026, 1, 2), 3: "three"},
        "parts": ({"data": b"\xff"}, [1, True, None, math.inf]),
    }
    told = recordable(given)
    assert told == {
        "role": "user",
        "content": "half \\ud800 of a pair",
        "arguments": {"nan": "nan", "large": str(2**70), "day": "2026-01-02", "3": "three"},
        "parts": [{"data": "b'\\xff'"}, [1, True, None, "inf"]],
    }
    assert decode_body(encode_message(told)) == told
    deep: Any = "bottom"
    for _ in range(2 * MAX_DEPTH):
        deep = [deep]
    told = recordable({"role": "user", "content": deep})
    assert "bottom" in encode_message(told).decode()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_forked_process_is_told_so_and_does_not_wait_for_ever() -> None:
    async def work() -> None:
        """Do nothing."""

    _, loop = engine_in_loop(Engine(MemoryStore()), "test")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork next to threads
        child = os.fork()
    if child == 0:
        signal.alarm(60)  # it is ended, should it wait for ever
        asyncio.set_event_loop(None)
        asyncio._set_running_loop(None)
        told = 0
        for call in (lambda: asyncio.run(run_in(loop, work())), lambda: wait_in(loop, work())):
            try:
                call()
            except InvalidSetting as error:
                told += "inherited by a fork" in str(error)
        os._exit(0 if told == 2 else 1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert status == 0
    await asyncio.to_thread(lambda: asyncio.run(run_in(loop, work())))


Row = dict[str, Any]

ROWS = st.lists(st.text(max_size=3), unique=True, max_size=8).map(
    lambda texts: [said(text) for text in texts]
)


def said(text: str, role: str = "user") -> Row:
    return {"role": role, "content": text}


def in_another_form(row: Row) -> Row:
    """The message as an API gives it back."""
    block = {"type": "input_text", "text": row["content"]}
    return {**row, "content": [block], "id": "msg_1", "status": "completed", "type": "message"}


@given(ROWS, st.integers(0, 8), st.sets(st.integers(0, 7)), st.booleans())
def test_what_stands_behind_the_transcript_is_new_and_what_the_host_left_out_is_not(
    rows: list[Row], known: int, left_out: set[int], other: bool
) -> None:
    transcript, new = rows[:known], rows[known:]
    kept = [row for at, row in enumerate(transcript) if at not in left_out]
    given_back = [in_another_form(one) if other else dict(one) for one in [*kept, *new]]
    found = held_against(transcript, given_back, plain_identity)
    assert found.whole == (kept == transcript)
    assert [plain_identity(one) for one in found.new] == [plain_identity(one) for one in new]


@pytest.mark.parametrize("interrupted", [0, 1])
def test_words_said_before_are_new_where_the_host_shows_no_earlier_turn(interrupted: int) -> None:
    calls = {"role": "assistant", "content": [tool_use("read", "1")]}
    turn = [said("go"), calls, {"role": "user", "content": [tool_result("1")]}]
    before = [*turn, said("done", "assistant")][: len(turn) + 1 - interrupted]
    transcript = list(before)
    for row in turn:
        shown = [*transcript[len(before) :], row]
        found = held_against(transcript, shown, by_name)
        assert (list(found.new), found.whole) == ([row], False)
        again = held_against([*transcript, row], shown, by_name)
        assert (list(again.new), again.whole) == ([], False)
        transcript.append(row)


ROUND = st.lists(st.sampled_from("ab"), min_size=1, max_size=3)


@given(st.lists(st.tuples(ROUND, st.sampled_from(["done", "open", "said"])), max_size=6))
def test_a_list_without_open_calls_is_whole_at_each_step_of_the_rounds_behind_them(
    rounds: list[tuple[list[str], str]],
) -> None:
    """Calls of one name are equal: identities have no ids where the host shows none."""
    transcript: list[Row] = []
    host: list[Row] = []
    for number, (names, ends) in enumerate(rounds):
        ids = [f"{number} {at}" for at in range(len(names))]
        words = [{"type": "text", "text": "I look."}] if ends == "said" else []
        calls = [tool_use(*one) for one in zip(names, ids, strict=True)]
        for row in (said("go"), {"role": "assistant", "content": [*words, *calls]}):
            found = held_against(transcript, [*host, row], by_name)
            assert (list(found.new), found.whole) == ([row], True)
            assert held_against([*transcript, row], [*host, row], by_name) == ([], True)
            transcript, host = [*transcript, row], [*host, row]
        if ends == "done":
            row = {"role": "user", "content": [tool_result(one) for one in ids]}
            assert held_against(transcript, [*host, row], by_name) == ([row], True)
            transcript, host = [*transcript, row], [*host, row]
        else:
            host = [*host[:-1], *([{"role": "assistant", "content": words}] if words else [])]


def tool_use(name: str, call_id: str) -> Row:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def tool_result(call_id: str) -> Row:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "text"}


def by_name(row: Mapping[str, Any]) -> Hashable:
    content = row["content"]
    if isinstance(content, list):
        ids = ("id", "tool_use_id")
        content = [{k: one[k] for k in one if k not in ids} for one in content]
    return plain_identity({**row, "content": content})


@given(st.text(), st.text())
def test_messages_that_say_different_things_are_different(one: str, other: str) -> None:
    again, plain = plain_identity(in_another_form(said(one))), plain_identity(said(other))
    assert (again == plain) == (one == other)
    assert plain != plain_identity(said(other, "assistant"))


def test_in_a_list_that_was_cut_a_call_under_way_is_known() -> None:
    call = {"type": "function_call", "call_id": "1", "name": "read", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "1", "output": "text"}
    transcript = [said("a"), said("b", "assistant"), said("c"), call]
    found = held_against(transcript, [said("c"), call, result], plain_identity)
    assert found == ([result], False)


# -- a host's conversation as a session ------------------------------------------------------------


async def opened(**more: Any) -> tuple[CountingStore, HostSession]:
    store = CountingStore()
    host = HostSession(await Engine(store).session("s", **more))
    await host.mirror([said("begin")])
    return store, host


STEPS = st.sampled_from(("grow", "take", "prepare", "full", "pop", "clear", "messages"))


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=12))
async def test_a_hosts_list_is_in_the_log_once_whatever_is_asked(steps: list[str]) -> None:
    """The host keeps a list and mirrors it; ``full`` is a request while the disk is full."""
    store, host = await opened()
    rows = [said("begin")]
    for number, step in enumerate(steps):
        if step == "grow":
            rows = [*rows, said(f"{number}"), said(f"{number} again")]
            await host.mirror(rows)
        elif step == "take":
            rows = [*rows, said(f"{number}")]
            await host.mirror(rows, with_request=True)
        elif step == "prepare":
            assert await host.prepare() == rows
        elif step == "full":
            await host.mirror(rows, with_request=True)
            store.full = True
            with pytest.raises(StoreFull):
                await host.prepare()
            store.full = False
            await host.mirror(rows, with_request=True)
        elif step == "pop":
            assert await host.pop() == (rows[-1] if rows else None)
            rows = rows[:-1]
        elif step == "clear":
            await host.clear()
            rows = []
        else:
            assert await host.messages() == rows
    assert await host.messages() == rows
    assert await host.context.get_messages() == rows


async def test_a_refused_message_is_dropped_and_one_that_overflows_is_brought_once() -> None:
    _, host = await opened(max_tokens=1_000)
    begin, long, on = said("begin"), said("word " * 3_000), said("go on")
    await host.mirror([begin, {"role": "user", "content": object()}], with_request=True)
    with pytest.raises(InvalidMessage):
        await host.prepare()
    await host.mirror([begin, on], with_request=True)
    assert await host.prepare() == [begin, on]
    for _ in range(2):
        await host.take([begin, on, long])
        with pytest.raises(ContextOverflow):
            await host.prepare()
    assert await host.context.get_messages() == [begin, on, long]
    await host.add([long])
    assert await host.messages() == [begin, on, long]
