"""What a host tells on its registry, event by event, and how each call of a tool ended."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
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
from eventctx.testing import ScriptedAmplifierProvider
from tests.amplifier.conversations import (
    CONVERSATIONS,
    Conversation,
    find_real_module,
    held,
    side_by_side,
)
from tests.amplifier.given import events, records_of, spans, types
from tests.amplifier.hosts import Named, mounted, session

Told = tuple[str, dict[str, Any]]
ASKED: list[Told] = [("prompt:submit", {}), ("provider:request", {"provider": "p"})]


async def recorded(path: Path, told: Iterable[Told]) -> list[Record]:
    async with session(ScriptedAmplifierProvider(), store=path) as host:
        for name, data in told:
            await host.coordinator.hooks.emit(name, data)
    return await records_of(path)


async def test_what_another_session_tells_on_the_registry_is_left_alone(path: Path) -> None:
    other = {"session_id": "another"}
    told = [*ASKED, ("prompt:submit", other), ("tool:pre", {**other, "tool_name": "read"})]
    records = await recorded(path, [*told, ("session:end", other), ("orchestrator:complete", {})])
    ends = ["provider:response", "prompt:complete", "session:end"]
    assert types(records) == ["prompt:submit", "provider:request", *ends]


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
    used = {"input": 70, "output": 5, "cache_write": 30}
    raw = {"id": "resp-1", "stop_reason": "end_turn"}
    answer = {"model": "m-1", "usage": used, "raw": raw}
    told = [*ASKED, ("llm:response", answer), ("orchestrator:complete", {})]
    records = await recorded(path, told)
    (one,) = events(records, "usage:reported")
    assert (one.prompt, one.output, one.cache_write, one.model) == (100, 5, 30, "m-1")
    (answered,) = events(records, "provider:response")
    assert (answered.response_id, answered.finish_reason) == ("resp-1", "end_turn")


async def test_a_call_that_was_cancelled_is_told_from_one_that_failed(path: Path) -> None:
    error = {"type": "CancelledError", "msg": ""}
    began = {"tool_name": "read", "tool_call_id": "c1"}
    of_tool = [("tool:pre", began), ("tool:error", {**began, "error": error})]
    records = await recorded(path, [*ASKED, ("provider:error", {"error": error}), *of_tool])
    for kind in ("provider:error", "tool:error"):
        assert [one.status for one in events(records, kind)] == ["cancelled"]


async def test_an_event_that_cannot_be_recorded_is_a_word_in_the_log_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with session(ScriptedAmplifierProvider(), store=tmp_path) as host:
        with caplog.at_level(logging.WARNING, "eventctx.adapters.amplifier"):
            await host.coordinator.hooks.emit("prompt:submit", {})
    assert "prompt:submit of session 'session-1' is not recorded" in caplog.text


# -- tools that a host does not tell apart -------------------------------------------------------

READ = {"tool_name": "read"}
BROKEN = {**READ, "error": {"type": "ValueError", "msg": "went wrong"}}
BEGAN: list[Told] = [("tool:pre", {**READ, "tool_input": {"path": one}}) for one in "ab"]


def calls_and_ends(records: list[Record]) -> list[tuple[str, str]]:
    """The calls in the order of their beginnings, each with its end and that end's message."""
    ends = {
        one.span_id: (one.type, getattr(decode_event(one), "message", ""))
        for one in records
        if one.type in ("tool:post", "tool:error")
    }
    return [ends[one.span_id] for one in spans(records, "tool:pre")]


@pytest.mark.parametrize("first", ["tool:error", "tool:post"])
async def test_a_failure_without_arguments_is_of_the_call_left_open(first: str, path: Path) -> None:
    returned = ("tool:post", {**READ, "tool_input": {"path": "a"}, "result": "text"})
    ends = [("tool:error", BROKEN), returned]
    told = [*ASKED, *BEGAN, *(ends if first == "tool:error" else ends[::-1])]
    records = await recorded(path, [*told, ("provider:request", {"provider": "p"})])
    assert calls_and_ends(records) == [("tool:post", ""), ("tool:error", "went wrong")]
    # It belongs to the iteration of its call, not to the one that made it known.
    assert [one.iteration for one in spans(records, "tool:error")] == [1]


@pytest.mark.parametrize("end", ["provider:request", "prompt:complete", "prompt:submit"])
async def test_where_the_host_does_not_say_which_failed_none_is_blamed(
    end: str, path: Path
) -> None:
    records = await recorded(path, [*ASKED, *BEGAN, ("tool:error", BROKEN), (end, {})])
    known = "the host did not say how it ended (of 2 calls of 'read', 1 failed: ValueError: "
    ends = events(records, "tool:error")
    assert [one.status for one in ends] == ["cancelled", "cancelled"]
    assert all(one.message.startswith(known) for one in ends)


async def test_the_tools_of_a_turn_do_not_belong_to_a_call_of_the_turn_before(path: Path) -> None:
    again: list[Told] = [("prompt:submit", {}), ("tool:pre", {"tool_name": "t"})]
    records = await recorded(path, [*ASKED, ("prompt:complete", {}), *again])
    _, turn = spans(records, "prompt:submit")
    assert [one.parent_span_id for one in spans(records, "tool:pre")] == [turn.span_id]


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
    """A host's registry with the listeners of one session, which opens when ``opened`` is set."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.opened = asyncio.Event()
        self.opened.set()
        self.begun: asyncio.Queue[Record] = asyncio.Queue()
        self.turns = EventListener("s", self._following, lambda _: False, lambda *_: None, None)
        self._listeners = self.turns.listeners()
        self._follow: HostReporter | None = None

    async def _following(self) -> HostReporter:
        await self.opened.wait()
        if self._follow is None:
            ctx = await self.engine.session("s")
            ctx.on("tool:pre", self.begun.put_nowait)
            self._follow = ctx.following()
        return self._follow

    def note(self, event: str, **data: Any) -> Any:
        return self._listeners[event](event, data)

    async def tell(self, event: str, **data: Any) -> None:
        done = self.note(event, **data)
        if done is not None:
            await done

    async def types(self) -> list[str]:
        return [record.type async for record in self.engine.records("s", 2)]


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with eventctx.open() as engine:
        yield Host(engine)


async def test_an_event_that_cannot_be_recorded_fails_no_call_and_no_later_event(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    itself: dict[str, Any] = {}
    itself["itself"] = itself
    await host.tell("prompt:submit")
    await host.tell("provider:request")
    await host.tell("tool:pre", tool_name="read", tool_input=itself)
    await host.tell("tool:pre", tool_name="write", tool_call_id="2")
    await host.turns.caught_up()
    assert await host.types() == ["provider:request", "provider:response", "tool:pre"]
    assert "tool:pre of session 's' is not recorded" in caplog.text


async def test_a_call_that_is_cancelled_while_the_session_opens_costs_no_event(host: Host) -> None:
    await host.tell("prompt:submit")
    await host.tell("provider:request")
    await host.tell("tool:pre", tool_name="read", tool_call_id="1")
    host.opened.clear()
    call = asyncio.create_task(host.turns.caught_up())
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    host.opened.set()
    await host.turns.caught_up()
    assert await host.types() == ["provider:request", "provider:response", "tool:pre"]


async def test_what_is_noted_is_recorded_though_the_host_calls_nothing(host: Host) -> None:
    await host.tell("prompt:submit")
    note = partial(host.note, "tool:pre", tool_name="read")
    await asyncio.to_thread(note, tool_call_id="1")
    assert host.begun.empty()
    await asyncio.wait_for(host.begun.get(), 60)
    note(tool_call_id="2")
    await asyncio.wait_for(host.begun.get(), 60)


# -- one mounted context and another ---------------------------------------------------------------


ROW = {"role": "user", "content": "Go on."}


async def begun(
    path: Path, session: str, parent: str | None = None
) -> tuple[Any, list[str], Callable[[], Awaitable[None]]]:
    """A mounted context, the compactions that its host hears of, and its cleanup."""
    coordinator = Named(session, parent)
    heard: list[str] = []

    async def hear(event: str, data: dict[str, Any]) -> None:
        heard.append(event.removeprefix("context:"))

    for event in ("context:pre_compact", "context:post_compact"):
        coordinator.hooks.register(event, hear)
    cleanup = await mount(coordinator, {"store": str(path), "max_tokens": 1_000})
    return coordinator.get("context"), heard, cleanup


async def filled(context: Any) -> None:
    for number in range(20):
        await context.add_message({"role": "user", "content": f"question {number} " * 20})
        await context.add_message({"role": "assistant", "content": f"answer {number} " * 20})


async def test_a_host_hears_of_the_compactions_of_its_own_session_alone(path: Path) -> None:
    one, of_one, end_one = await begun(path, "one")
    other, of_other, end_other = await begun(path, "other")
    await other.add_message(ROW)
    await filled(one)
    assert await one.compact() > 0
    assert of_one == ["pre_compact", "post_compact"]
    await end_one()
    await filled(other)
    await other.get_messages_for_request()
    assert of_one == of_other == ["pre_compact", "post_compact"]
    await end_other()


async def test_a_host_that_let_go_is_asked_nothing_more(path: Path) -> None:
    gone, of_gone, end_gone = await begun(path, "one")
    here, of_here, end_here = await begun(path, "one")
    await filled(gone)
    await here.get_messages()
    await end_gone()
    await here.compact()
    assert (of_gone, of_here) == ([], ["pre_compact", "post_compact"])
    await end_here()


@pytest.mark.parametrize(("call", "rows"), [("get_messages_for_request", 2), ("clear", 1)])
async def test_a_child_that_was_asked_or_cleared_takes_the_same_words_for_new(
    call: str, rows: int, path: Path
) -> None:
    async with mounted({"store": str(path)}, Named("child", "parent")) as context:
        await context.add_message(ROW)
    async with mounted({"store": str(path)}, Named("child", "parent")) as context:
        await getattr(context, call)()
        await context.add_message(ROW)
        assert len(await context.get_messages()) == rows


# -- how each call ended, on the doubles of Amplifier's loops and on the real ones where they are --


LOOPS = ["basic", "streaming", "loop-basic", "loop-streaming", "loop-events"]

Ends = dict[str | None, tuple[str, str | None]]
RETURNED: tuple[str, str | None] = ("ok", None)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param.startswith("loop-"):
        find_real_module(request.param, monkeypatch)
    return str(request.param)


async def ends_in(path: Path) -> Ends:
    """Status and message of each call, by call id, as the log says after a conversation."""
    records = await records_of(path)
    ends: Ends = {one.call_id: RETURNED for one in events(records, "tool:post")}
    failed = events(records, "tool:error")
    return ends | {one.call_id: (one.status, one.message) for one in failed}


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("a text as output", RETURNED, None),
        ("a dict as output", RETURNED, None),
        ("no output", RETURNED, None),
        ("failed with an error", ("error", "gone"), None),
        ("failed with both", ("error", "died"), None),
        ("raised", ("error", "went wrong"), None),
        ("failed", ("error", "the tool gave no reason"), None),
        ("denied", ("error", "Denied by hook: not allowed"), None),
        ("killed", ("cancelled", "the host did not say how it ended"), None),
        ("side by side, the second raises", RETURNED, ("error", "went wrong")),
        ("side by side, the second raises last", RETURNED, ("error", "went wrong")),
        ("side by side, both raise", ("error", "first"), ("error", "second")),
    ],
)
async def test_each_call_ended_as_its_tool_did(
    name: str, first: Any, second: Any, loop: str, path: Path
) -> None:
    if loop == "loop-events":
        if second:
            pytest.skip("loop-events runs one tool after the other")
        first = (first[0], first[1] and first[1].removeprefix("Denied by hook: "))
    await held(CONVERSATIONS[name], loop=loop, store=path)
    expected = {"call_1": first} | ({"call_2": second} if second else {})
    assert await ends_in(path) == expected


async def test_a_tool_that_is_not_there_has_failed(loop: str, path: Path) -> None:
    await held(CONVERSATIONS["an unknown tool"], loop=loop, store=path)
    ((status, message),) = (await ends_in(path)).values()
    assert status == "error" and "not found" in str(message)


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_of_equal_calls_the_one_has_failed_that_did(
    order: str, loop: str, path: Path
) -> None:
    if loop == "loop-events":
        pytest.skip("loop-events runs one tool after the other")
    turns = iter(order)

    def does(given: dict[str, Any]) -> Any:
        # Calls of equal arguments: the first to come returns, the second raises.
        if next(turns) == "a":
            return conversation.does({"path": "a"})
        raise ValueError("went wrong")

    conversation = side_by_side({"path": "a"}, {"path": "a"})
    seen = await held(Conversation(conversation.script, does), loop=loop, store=path)
    ends = {call: status for call, (status, _) in (await ends_in(path)).items()}
    results = {row["tool_call_id"]: row["content"] for row in seen.rows if row["role"] == "tool"}
    assert ends == {
        call: "error" if "went wrong" in text else "ok" for call, text in results.items()
    }
    assert sorted(ends.values()) == ["error", "ok"]


# -- the doubles against the real loops ------------------------------------------------------------


TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:\+00:00|Z)")


@pytest.fixture(params=["basic", "streaming"])
def real_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a double whose real loop can be loaded."""
    find_real_module(f"loop-{request.param}", monkeypatch)
    return str(request.param)


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_times(one) for one in value]
    return TIME.sub("a time", value) if isinstance(value, str) else value


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_double_emits_stores_and_sends_what_the_real_does(
    name: str, real_loop: str
) -> None:
    double = await held(CONVERSATIONS[name], loop=real_loop)
    real = await held(CONVERSATIONS[name], loop=f"loop-{real_loop}")
    assert double.result == real.result
    assert [event for event, _ in double.events] == [event for event, _ in real.events]
    for mine, theirs in zip(double.events, real.events, strict=True):
        assert mine == theirs
    assert without_times(double.rows) == without_times(real.rows)
    assert without_times(double.requests) == without_times(real.requests)
