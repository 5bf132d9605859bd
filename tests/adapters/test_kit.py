"""What the kit does for every adapter: sessions that are held open, and failures in one form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from eventctx.adapters.kit import (
    HostSession,
    OpenSessions,
    call_failed,
    given_engine,
    tool_failed,
    turn_failed,
)
from eventctx.engine import Engine, open_engine


class Held:
    def __init__(self, name: str) -> None:
        self.name, self.closed = name, False

    def close(self) -> None:
        self.closed = True


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
