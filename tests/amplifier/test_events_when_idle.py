"""Events that are only noted at first: they are recorded without another call of the host."""

from __future__ import annotations

import asyncio

import pytest

from eventctx.adapters.amplifier.event_listener import EventListener
from eventctx.engine import Engine
from eventctx.log.record import Record
from eventctx.session.host_turns import HostReporter
from eventctx.stores.memory import MemoryStore


class Host:
    """A registry's part of a session, in whichever loop runs. ``begun`` gets calls of tools."""

    def __init__(self) -> None:
        self.engine = Engine(MemoryStore())
        turns = EventListener("s", self._following, lambda _: False, lambda *_: None, None)
        self.listeners = turns.listeners()
        self.follow: HostReporter | None = None
        self.begun: asyncio.Queue[Record] = asyncio.Queue()

    async def _following(self) -> HostReporter:
        if self.follow is None:
            ctx = await self.engine.session("s")
            ctx.on("tool:pre", self.begun.put_nowait)
            self.follow = ctx.following()
        return self.follow

    async def begins_a_turn(self) -> None:
        await self.listeners["prompt:submit"]("prompt:submit", {})

    def calls(self, tool: str) -> None:
        self.listeners["tool:pre"]("tool:pre", {"tool_name": tool, "tool_call_id": tool})

    async def records_a_call(self) -> None:
        await asyncio.wait_for(self.begun.get(), 60)


async def test_what_is_noted_is_recorded_though_the_host_calls_nothing() -> None:
    host = Host()
    await host.begins_a_turn()
    await asyncio.to_thread(host.calls, "read")
    assert host.begun.empty()
    await host.records_a_call()
    host.calls("write")
    await host.records_a_call()
    await host.engine.close()


@pytest.mark.parametrize("closed", [True, False])
def test_it_is_recorded_in_the_loop_that_runs_though_another_was_left_before(closed: bool) -> None:
    host, left = Host(), asyncio.new_event_loop()

    async def begin() -> None:
        await host.begins_a_turn()
        host.calls("read")

    async def go_on() -> None:
        await host.begins_a_turn()
        host.calls("write")
        await host.records_a_call()
        await host.records_a_call()
        await host.engine.close()

    left.run_until_complete(begin())
    if closed:
        left.close()
    asyncio.run(go_on())
    left.close()
