"""A host's events that were noted are recorded later: what may come in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.adapters.amplifier.event_listener import EventListener
from eventctx.engine import Engine
from eventctx.session.host_turns import HostReporter

Data = Mapping[str, Any]


class Host:
    """A host's registry with the listeners of one session."""

    def __init__(self, following: Callable[[], Awaitable[HostReporter]]) -> None:
        self.turns = EventListener("s", following, lambda _: False, lambda *_: None, None)
        self._listeners = self.turns.listeners()

    async def tell(self, event: str, **data: Any) -> None:
        done = self._listeners[event](event, data)
        if done is not None:
            await done

    async def in_a_tool(self) -> None:
        await self.tell("prompt:submit")
        await self.tell("provider:request")
        await self.tell("tool:pre", tool_name="read", tool_call_id="1")


@asynccontextmanager
async def hosted(path: Path) -> AsyncIterator[tuple[Host, Engine, asyncio.Event]]:
    """A host; its session takes until the event is set to open."""
    opened = asyncio.Event()
    opened.set()
    async with eventctx.open(path, receipts=False) as engine:
        following = (await engine.session("s")).following()

        async def of_session() -> HostReporter:
            await opened.wait()
            return following

        yield Host(of_session), engine, opened


async def types_in(engine: Engine) -> list[str]:
    return [record.type async for record in engine.records("s", 2)]


async def test_an_event_that_cannot_be_recorded_fails_no_call_and_no_later_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosted(tmp_path / "store.db") as (host, engine, _):
        itself: dict[str, Any] = {}
        itself["itself"] = itself
        await host.tell("prompt:submit")
        await host.tell("provider:request")
        await host.tell("tool:pre", tool_name="read", tool_input=itself)
        await host.tell("tool:pre", tool_name="write", tool_call_id="2")
        await host.turns.caught_up()
        assert await types_in(engine) == ["provider:request", "provider:response", "tool:pre"]
    assert "tool:pre of session 's' is not recorded" in caplog.text


async def test_a_call_that_is_cancelled_while_the_session_opens_costs_no_event(
    tmp_path: Path,
) -> None:
    async with hosted(tmp_path / "store.db") as (host, engine, opened):
        await host.in_a_tool()
        opened.clear()
        call = asyncio.create_task(host.turns.caught_up())
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        opened.set()
        await host.turns.caught_up()
        assert await types_in(engine) == ["provider:request", "provider:response", "tool:pre"]
