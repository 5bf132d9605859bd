"""The kit: sessions that are held open, failures in one form, rows as JSON, forked processes."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import warnings
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from eventctx.adapters.kit import (
    HostSession,
    OpenSessions,
    call_failed,
    given_engine,
    tool_failed,
    turn_failed,
)
from eventctx.adapters.kit.loops import engine_in_loop, run_in, wait_in
from eventctx.adapters.kit.recordable import recordable
from eventctx.engine import Engine, open_engine
from eventctx.errors import InvalidSetting
from eventctx.messages.encoding import MAX_DEPTH, decode_body, encode_message
from eventctx.stores.memory import MemoryStore


class Held:
    def __init__(self, name: str) -> None:
        self.name, self.closed = name, False

    def close(self) -> None:
        self.closed = True


async def test_the_session_that_was_used_least_recently_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(given_engine, "MAX_SESSIONS", 2)
    sessions: OpenSessions[Held] = OpenSessions()

    def opener(name: str) -> Callable[[], asyncio.Future[Held]]:
        return lambda: asyncio.ensure_future(asyncio.to_thread(Held, name))

    first, second = [await sessions.of(name, opener(name)) for name in ("a", "b")]
    await sessions.of("a", opener("a"))
    third = await sessions.of("c", opener("c"))
    assert [first.closed, second.closed, third.closed] == [False, True, False]
    assert await sessions.of("b", opener("b")) is not second


async def ends(engine: Engine, error: BaseException) -> dict[str, bytes]:
    """What is recorded of a call, a tool and a turn that ``error`` ended, by type."""
    host = HostSession(await engine.session("s"))
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
    return {one.type: one.payload async for one in engine.records("s") if one.type in types}


@pytest.mark.parametrize(
    ("error", "gave_up"),
    [
        (ValueError("unplugged"), False),
        (asyncio.CancelledError("unplugged"), True),
        (KeyboardInterrupt("unplugged"), True),
        (GeneratorExit("unplugged"), True),
    ],
    ids=repr,
)
async def test_what_somebody_gave_up_is_recorded_as_cancelled_and_else_as_failed(
    error: BaseException, gave_up: bool
) -> None:
    async with open_engine("memory://") as engine:
        found = await ends(engine, error)
    assert len(found) == 3
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


# -- a process that was forked off -----------------------------------------------------------------


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


async def work() -> None:
    """Do nothing."""


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except InvalidSetting as error:
        return "inherited by a fork" in str(error)
    return False


async def test_a_forked_process_is_told_so_and_does_not_wait_for_ever() -> None:
    _, loop = engine_in_loop(Engine(MemoryStore()), "test")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork next to threads
        child = os.fork()
    if child == 0:
        signal.alarm(60)  # it is ended, should it wait for ever
        asyncio.set_event_loop(None)
        asyncio._set_running_loop(None)
        told = [
            refused(lambda: asyncio.run(run_in(loop, work()))),
            refused(lambda: wait_in(loop, work())),
        ]
        os._exit(0 if all(told) else 1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert status == 0
    await asyncio.to_thread(lambda: asyncio.run(run_in(loop, work())))


async def test_a_session_is_made_once_also_where_two_calls_ask_for_it_at_once() -> None:
    made: list[Held] = []

    async def opened() -> Held:
        await asyncio.sleep(0)
        made.append(Held("s"))
        return made[-1]

    sessions: OpenSessions[Held] = OpenSessions()
    one, other = await asyncio.gather(sessions.of("s", opened), sessions.of("s", opened))
    assert one is other is await sessions.of("s", opened)
    assert [each.closed for each in made] == [each is not one for each in made]


def test_what_is_nested_too_deeply_stands_as_a_text() -> None:
    deep: Any = "bottom"
    for _ in range(2 * MAX_DEPTH):
        deep = [deep]
    told = recordable({"role": "user", "content": deep})
    assert "bottom" in encode_message(told).decode()
