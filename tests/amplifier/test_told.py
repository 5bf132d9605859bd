"""What a host tells on its registry, event by event: what of it is recorded, also later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.adapters.amplifier import mount
from eventctx.adapters.amplifier.event_listener import EventListener
from eventctx.engine import Engine
from eventctx.log.codec import decode_event
from eventctx.log.record import Record
from eventctx.session.host_turns import HostReporter
from eventctx.stores.memory import MemoryStore
from eventctx.testing import ScriptedAmplifierProvider
from tests.amplifier.given import events, records_of, types, unended
from tests.amplifier.hosts import Named, session

Told = tuple[str, dict[str, Any]]
ASKED: list[Told] = [("prompt:submit", {}), ("provider:request", {"provider": "p"})]


async def recorded(path: Path, told: Sequence[Told]) -> list[Any]:
    config = {"store": str(path)}
    async with session(ScriptedAmplifierProvider(), config=config) as host:
        for name, data in told:
            await host.coordinator.hooks.emit(name, data)
    records = await records_of(path)
    assert unended(records) == []
    return records


async def test_what_another_session_tells_on_the_registry_is_left_alone(path: Path) -> None:
    other = {"session_id": "another"}
    told = [*ASKED, ("prompt:submit", other), ("tool:pre", {**other, "tool_name": "read"})]
    records = await recorded(path, [*told, ("session:end", other), ("orchestrator:complete", {})])
    assert types(records) == [
        "prompt:submit",
        "provider:request",
        "provider:response",
        "prompt:complete",
        "session:end",
    ]


@pytest.mark.parametrize("name", ["prompt:complete", "orchestrator:complete", "execution:end"])
@pytest.mark.parametrize(
    ("status", "ended"), [("cancelled", "cancelled"), ("error", "error"), ("incomplete", "ok")]
)
async def test_a_turn_ends_by_any_of_the_events_that_hosts_have_for_it(
    name: str, status: str, ended: str, path: Path
) -> None:
    records = await recorded(path, [("prompt:submit", {}), (name, {"status": status})])
    assert [one.status for one in events(records, "prompt:complete")] == [ended]


async def test_what_a_provider_says_of_its_answer_is_recorded_with_it(path: Path) -> None:
    answer = {
        "model": "m-1",
        "usage": {"input": 70, "output": 5, "cache_write": 30},
        "raw": {"id": "resp-1", "stop_reason": "end_turn"},
    }
    told = [*ASKED, ("llm:response", answer), ("orchestrator:complete", {})]
    records = await recorded(path, told)
    (used,) = events(records, "usage:reported")
    assert (used.prompt, used.output, used.cache_write, used.model) == (100, 5, 30, "m-1")
    (answered,) = events(records, "provider:response")
    assert (answered.response_id, answered.finish_reason) == ("resp-1", "end_turn")


async def test_a_call_that_was_cancelled_is_told_from_one_that_failed(path: Path) -> None:
    error = {"type": "CancelledError", "msg": ""}
    began = {"tool_name": "read", "tool_call_id": "c1"}
    told = [
        *ASKED,
        ("provider:error", {"error": error}),
        ("tool:pre", began),
        ("tool:error", {**began, "error": error}),
    ]
    records = await recorded(path, told)
    statuses = [
        one.status for kind in ("provider:error", "tool:error") for one in events(records, kind)
    ]
    assert statuses == ["cancelled", "cancelled"]


async def test_an_event_that_cannot_be_recorded_is_a_word_in_the_log_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"store": str(tmp_path)}
    async with session(ScriptedAmplifierProvider(), config=config) as host:
        with caplog.at_level(logging.WARNING, "eventctx.adapters.amplifier"):
            await host.coordinator.hooks.emit("prompt:submit", {})
    assert "prompt:submit of session 'session-1' is not recorded" in caplog.text


# -- tools that a host does not tell apart -------------------------------------------------------

READ = {"tool_name": "read"}
BROKEN = {**READ, "error": {"type": "ValueError", "msg": "went wrong"}}
BEGAN: list[Told] = [
    *ASKED,
    ("tool:pre", {**READ, "tool_input": {"path": "a"}}),
    ("tool:pre", {**READ, "tool_input": {"path": "b"}}),
]


def calls_and_ends(records: list[Any]) -> list[tuple[str, str]]:
    """The calls in the order of their beginnings, each with its end and that end's message."""
    ends = {
        one.span_id: (one.type, getattr(decode_event(one), "message", ""))
        for one in records
        if one.type in ("tool:post", "tool:error")
    }
    return [ends[one.span_id] for one in records if one.type == "tool:pre"]


@pytest.mark.parametrize("first", ["tool:error", "tool:post"])
async def test_a_failure_without_arguments_is_of_the_call_that_did_not_return(
    first: str, path: Path
) -> None:
    ends: list[Told] = [
        ("tool:error", BROKEN),
        ("tool:post", {**READ, "tool_input": {"path": "a"}, "result": "text"}),
    ]
    told = [*BEGAN, *(ends if first == "tool:error" else reversed(ends))]
    records = await recorded(path, [*told, ("provider:request", {"provider": "p"})])
    assert calls_and_ends(records) == [("tool:post", ""), ("tool:error", "went wrong")]
    # It belongs to the iteration of its call, not to the one that made it known.
    (failed,) = [one for one in records if one.type == "tool:error"]
    assert failed.iteration == 1


@pytest.mark.parametrize("end", ["provider:request", "prompt:complete", "prompt:submit"])
async def test_where_the_host_never_says_which_call_failed_none_is_blamed(
    end: str, path: Path
) -> None:
    records = await recorded(path, [*BEGAN, ("tool:error", BROKEN), (end, {})])
    known = "the host did not say how it ended (of 2 calls of 'read', 1 failed: ValueError: "
    ends = events(records, "tool:error")
    assert [one.status for one in ends] == ["cancelled", "cancelled"]
    assert all(one.message.startswith(known) for one in ends)


async def test_the_tools_of_a_turn_do_not_belong_to_a_call_of_the_turn_before(path: Path) -> None:
    told = [
        *ASKED,
        ("prompt:complete", {}),
        ("prompt:submit", {}),
        ("tool:pre", {"tool_name": "t"}),
    ]
    records = await recorded(path, told)
    began = [one.span_id for one in records if one.type == "prompt:submit"]
    (tool,) = [one for one in records if one.type == "tool:pre"]
    assert tool.parent_span_id == began[1]


async def test_a_result_that_says_it_failed_is_a_failed_call_with_its_error(path: Path) -> None:
    error = {"type": "OSError", "message": "x" * 3_000}
    result = {"success": False, "output": "half", "error": error}
    call = {**READ, "tool_call_id": "c1"}
    told = [*ASKED, ("tool:pre", call), ("tool:post", {**call, "result": result})]
    (failed,) = events(await recorded(path, told), "tool:error")
    assert (failed.call_id, failed.status, failed.error_type) == ("c1", "error", "OSError")
    assert failed.message == "x" * 2_000


# -- events that are recorded later ---------------------------------------------------------------


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


async def test_a_host_hears_of_the_compactions_of_its_own_session_alone(path: Path) -> None:
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


async def test_a_child_that_was_asked_or_cleared_takes_the_same_words_for_new(path: Path) -> None:
    for call, expected in (("get_messages_for_request", 2), ("clear", 1)):
        context, _, cleanup, _ = await mounted(path, call, "parent")
        await context.add_message(ROW)
        await cleanup()
        context, _, cleanup, _ = await mounted(path, call, "parent")
        await getattr(context, call)()
        await context.add_message(ROW)
        assert len(await context.get_messages()) == expected
        await cleanup()


async def test_a_host_that_let_go_is_asked_nothing_more(path: Path) -> None:
    gone, of_gone, end_gone, _ = await mounted(path, "one", max_tokens=1_000)
    here, of_here, end_here, _ = await mounted(path, "one", max_tokens=1_000)
    await filled(gone)
    await here.get_messages()
    await end_gone()
    await here.compact()
    assert (of_gone, of_here) == ([], ["pre_compact", "post_compact"])
    await end_here()
