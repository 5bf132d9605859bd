"""The kit: the driver of a host's runs, open sessions, failures, rows as JSON, forked processes."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import warnings
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from eventctx.adapters.kit import (
    GivenEngine,
    HostRun,
    HostSession,
    OpenSessions,
    ToolAround,
    ToolEnd,
    call_failed,
    given_engine,
    tool_around,
    tool_failed,
    turn_failed,
)
from eventctx.adapters.kit.loops import engine_in_loop, run_in, wait_in
from eventctx.adapters.kit.recordable import recordable
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.log.codec import decode_known
from eventctx.messages.encoding import MAX_DEPTH, decode_body, encode_message
from eventctx.stores.memory import MemoryStore
from tests.adapters.logs import records_of

ENDS = ("prompt:complete", "provider:response", "provider:error", "tool:post", "tool:error")


class Waits(Exception):
    """A tool's way to ask a person."""


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
        with suppress(Waits):
            async with host.run.tool("ask", "c3", waits=(Waits,)):
                raise Waits
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
    ("error", "status"), [(ValueError("torn"), "error"), (asyncio.CancelledError(), "cancelled")]
)
async def test_a_step_that_an_exception_leaves_has_failed_or_was_cancelled(
    host: Host, error: BaseException, status: str
) -> None:
    with suppress(type(error)):
        async with host.turn(), host.call():
            raise error
    with suppress(type(error)):
        async with host.turn(), host.run.tool("look", "c1"):
            raise error
    assert [one for one in host.ends() if one[1] != "ok"] == [
        *[("provider:error", status), ("prompt:complete", status)],
        *[("tool:error", status), ("prompt:complete", status)],
    ]


# -- sessions that are held open, and failures in one form ----------------------------------------


class Held:
    closed = False

    def close(self) -> None:
        self.closed = True


async def opens() -> Held:
    await asyncio.sleep(0)
    return Held()


async def test_the_session_that_was_used_least_recently_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


@pytest.mark.parametrize(
    ("kind", "gave_up"),
    [
        (ValueError, False),
        (asyncio.CancelledError, True),
        (KeyboardInterrupt, True),
        (GeneratorExit, True),
    ],
)
async def test_what_somebody_gave_up_is_recorded_as_cancelled_and_else_as_failed(
    engine: Engine, kind: type[BaseException], gave_up: bool
) -> None:
    host, error = HostSession(await engine.session("s")), kind("unplugged")
    for end in ("call", "tool"):
        await host.turns.turn_began()
        await host.mirror([{"role": "user", "content": "Go."}])
        await host.turns.iteration_began(model="m")
        await host.prepare()
        if end == "call":
            await call_failed(host.turns, error)
        else:
            await host.turns.model_answered()
            await host.turns.tool_began("look", "call_1", "call_1")
            await tool_failed(host.turns, "call_1", error)
        await turn_failed(host.turns, error)
    types = ("provider:error", "tool:error", "prompt:complete")
    found = {one.type: one.payload for one in await records_of(engine) if one.type in types}
    assert [b'"status":"cancelled"' in one for one in found.values()] == [gave_up] * 3
    assert [b"unplugged" in one for one in found.values()].count(True) == (2 if gave_up else 3)


# -- rows that the log could not hold as they are --------------------------------------------------


def test_a_row_that_the_log_can_hold_is_the_row_itself() -> None:
    row = {"role": "user", "content": [{"type": "text", "text": "zażółć"}], "n": 1.5, "no": None}
    assert recordable(row) is row


def test_what_is_no_json_stands_as_a_text_and_all_else_as_it_was() -> None:
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


def test_what_is_nested_too_deeply_stands_as_a_text() -> None:
    deep: Any = "bottom"
    for _ in range(2 * MAX_DEPTH):
        deep = [deep]
    told = recordable({"role": "user", "content": deep})
    assert "bottom" in encode_message(told).decode()


# -- a process that was forked off -----------------------------------------------------------------


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
