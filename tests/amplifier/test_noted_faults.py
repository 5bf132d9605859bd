"""Events that a host tells and are recorded later; one mounted context and another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.adapters.amplifier import mount
from eventctx.adapters.amplifier.event_listener import EventListener
from eventctx.engine import Engine
from eventctx.log.record import Record
from eventctx.session.host_turns import HostReporter
from eventctx.stores.memory import MemoryStore
from tests.amplifier.hosts import Named


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


# -- a host that calls nothing more ----------------------------------------------------------------


class IdleHost:
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
    host = IdleHost()
    await host.begins_a_turn()
    await asyncio.to_thread(host.calls, "read")
    assert host.begun.empty()
    await host.records_a_call()
    host.calls("write")
    await host.records_a_call()
    await host.engine.close()


# -- one mounted context and another ---------------------------------------------------------------


ROW = {"role": "user", "content": "Go on."}


async def mounted(
    path: Path, session: str, parent: str | None = None, **config: Any
) -> tuple[Any, list[str], Callable[[], Awaitable[None]], Any]:
    """A context, the compactions that its host hears of, its cleanup, and its hooks."""
    coordinator = Named(session, parent)
    heard: list[str] = []

    async def hear(event: str, data: dict[str, Any]) -> None:
        heard.append(event.removeprefix("context:"))

    for event in ("context:pre_compact", "context:post_compact"):
        coordinator.hooks.register(event, hear)
    cleanup = await mount(coordinator, {"store": str(path), **config})
    return coordinator.get("context"), heard, cleanup, coordinator.hooks


async def filled(context: Any) -> None:
    for number in range(20):
        await context.add_message({"role": "user", "content": f"question {number} " * 20})
        await context.add_message({"role": "assistant", "content": f"answer {number} " * 20})


async def test_a_host_hears_of_the_compactions_of_its_own_session_alone(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    one, of_one, end_one, _ = await mounted(path, "one", max_tokens=1_000)
    other, of_other, end_other, _ = await mounted(path, "other", max_tokens=1_000)
    await other.add_message(ROW)
    await filled(one)
    assert await one.compact() > 0
    assert of_one == ["pre_compact", "post_compact"]
    await end_one()
    await filled(other)
    await other.get_messages_for_request()
    assert of_one == of_other == ["pre_compact", "post_compact"]
    await end_other()


async def test_a_child_that_was_asked_or_cleared_takes_the_same_words_for_new(
    tmp_path: Path,
) -> None:
    path = tmp_path / "contexts.db"
    for call, expected in (("get_messages_for_request", 2), ("clear", 1)):
        context, _, cleanup, _ = await mounted(path, call, "parent")
        await context.add_message(ROW)
        await cleanup()
        context, _, cleanup, _ = await mounted(path, call, "parent")
        await getattr(context, call)()
        await context.add_message(ROW)
        assert len(await context.get_messages()) == expected
        await cleanup()


async def test_a_host_that_let_go_is_asked_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    gone, of_gone, end_gone, _ = await mounted(path, "one", max_tokens=1_000)
    here, of_here, end_here, _ = await mounted(path, "one", max_tokens=1_000)
    await filled(gone)
    await here.get_messages()
    await end_gone()
    await here.compact()
    assert (of_gone, of_here) == ([], ["pre_compact", "post_compact"])
    await end_here()
