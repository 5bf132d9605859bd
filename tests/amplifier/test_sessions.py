"""Whole sessions on the real kernel: what is recorded of them, and what the provider is sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from amplifier_core import HookResult

import eventctx
from eventctx.orchestrators.protocol import Usage
from eventctx.projections.view.entries import CALL_NOT_ENDED
from eventctx.testing import EventRecorder, Hang, Reply, ScriptedAmplifierProvider
from tests.amplifier.given import events, records_of, spans, types
from tests.amplifier.hosts import session, tool

LOOPS = pytest.mark.parametrize("loop", ["basic", "streaming"])


CALLS = [("read", {"path": "a"}), ("read", {"path": "b"})]
BOTH = Reply(calls=CALLS, thinking="hm", usage=Usage(700, 8))


class Answering(ScriptedAmplifierProvider):
    """A provider that reports its answers, as Amplifier's do; loop-streaming leaves it to them."""

    hooks: Any = None

    async def complete(self, request: Any, **options: Any) -> Any:
        response = await super().complete(request, **options)
        counted = {"input": response.usage.input_tokens, "output": response.usage.output_tokens}
        told = {"provider": self.name, "model": self.model, "usage": counted, "status": "ok"}
        await self.hooks.emit("llm:response", told)
        return response


@LOOPS
async def test_a_turn_with_parallel_tools_is_recorded_with_its_ids(loop: str, path: Path) -> None:
    provider = Answering(BOTH, Reply("Done.", usage=Usage(900, 9)))
    async with session(provider, tool("read", "aa", "bb"), loop=loop, store=path) as host:
        assert await host.execute("Read both.") == "Done."
    records = await records_of(path)
    besides = ("context:request_sent", "usage:reported")
    told = [one for one in types(records) if one not in besides]
    assert [one.untold for one in events(records, "context:request_sent")] == [0, 0]
    # The two calls run side by side: which one begins or ends first is nobody's promise.
    told[4:8] = sorted(told[4:8], reverse=True)
    asking = ["context:request_prepared", "provider:request", "provider:response"]
    ran = ["tool:pre", "tool:pre", "tool:post", "tool:post"]
    assert told == ["prompt:submit", *asking, *ran, *asking, "prompt:complete", "session:end"]
    (turn,) = spans(records, "prompt:submit")
    in_turn = [one for one in records if one.type not in ("session:start", "session:end")]
    assert {one.turn_id for one in in_turn} == {turn.turn_id}
    asked = spans(records, "provider:request")
    assert [(one.parent_span_id, one.iteration) for one in asked] == [
        (turn.span_id, 1),
        (turn.span_id, 2),
    ]
    calls = spans(records, "tool:pre")
    assert [one.parent_span_id for one in calls] == [asked[0].span_id] * 2
    assert len({one.span_id for one in (turn, *asked, *calls)}) == 5
    assert {one.call_id for one in events(records, "tool:pre")} == {"call_1", "call_2"}
    prepared = [one.position for one in spans(records, "context:request_prepared")]
    assert [one.prepared for one in events(records, "provider:request")] == prepared
    used = [(one.prompt, one.output, one.prepared) for one in events(records, "usage:reported")]
    assert used == [(700, 8, prepared[0]), (900, 9, prepared[1])]


@LOOPS
async def test_what_the_provider_got_is_what_the_audit_shows(loop: str, path: Path) -> None:
    looks = Reply("Let me look.", calls=[("read", {"n": 1})], thinking="hm")
    provider = ScriptedAmplifierProvider(looks, "Done.", "And again.")
    async with session(provider, tool("read"), loop=loop, store=path) as host:
        await host.execute("Read.")
        await host.execute("Again.")
    async with eventctx.open(path) as engine:
        rows = (await engine.audit("session-1")).requests
        assert [(row.turn, row.iteration) for row in rows] == [(1, 1), (1, 2), (2, 1)]
        for row, got in zip(rows, provider.messages, strict=True):
            view = await engine.request_view("session-1", position=row.position)
            assert view.verified
            assert [one["role"] for one in view.messages] == [one["role"] for one in got]
    thinking = provider.messages[1][1]["content"][0]
    assert (thinking["type"], thinking["signature"]) == ("thinking", "c2lnbmVk")


@LOOPS
async def test_an_injection_between_a_call_and_its_result_moves_behind_it_in_the_view(
    loop: str, path: Path
) -> None:
    def remind(event: str, data: dict[str, Any]) -> Any:
        return HookResult(
            action="inject_context", context_injection="Mind the tabs.", suppress_output=True
        )

    provider = ScriptedAmplifierProvider(BOTH, "Done.")
    hooks = {"tool:post": remind}
    async with session(provider, tool("read"), loop=loop, hooks=hooks, store=path) as host:
        await host.execute("Read.")
        stored = [row["role"] for row in await host.coordinator.get("context").get_messages()]
    assert stored == ["user", "assistant", "system", "system", "tool", "tool", "assistant"]
    sent = [row["role"] for row in provider.messages[1]]
    assert sent == ["user", "assistant", "tool", "tool", "system", "system"]


async def test_a_host_that_kills_its_task_leaves_a_log_whose_next_turn_works(path: Path) -> None:
    hang = Hang()
    provider = ScriptedAmplifierProvider(Reply(calls=[("wait", {"n": 1})]), "Back.")
    async with session(provider, tool("wait", hang), store=path) as host:
        running = asyncio.ensure_future(host.execute("Wait."))
        await hang.reached()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await host.execute("Go on.") == "Back."
    rows = provider.messages[1]
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "user"]
    assert rows[2]["content"] == CALL_NOT_ENDED
    await records_of(path)


async def test_a_session_of_an_id_that_cannot_name_one_is_recorded_whole(path: Path) -> None:
    provider = ScriptedAmplifierProvider("Hi.")
    async with session(provider, store=path, session_id="team/one") as host:
        await host.execute("Hello")
    found = types(await records_of(path, "team%2Fone"))
    assert (found[0], found[-1]) == ("prompt:submit", "session:end")


async def test_a_call_whose_arguments_are_text_is_known_by_them(path: Path) -> None:
    async with session(ScriptedAmplifierProvider("Hi."), store=path) as host:
        emit = host.coordinator.hooks.emit
        await emit("prompt:submit", {})
        called = [
            {"id": f"c{n}", "function": {"name": "read", "arguments": f'{{"b":1,"a":{n}}}'}}
            for n in (0, 1, 1)
        ]
        called[2]["id"] = "c2"
        context = host.coordinator.get("context")
        await context.add_message({"role": "assistant", "content": None, "tool_calls": called})
        for n in (1, 1, 0):
            await emit("tool:pre", {"tool_name": "read", "tool_input": {"a": n, "b": 1}})
    began = events(await records_of(path), "tool:pre")
    assert [one.call_id for one in began] == ["c1", "c2", "c0"]


async def test_a_child_session_is_linked_to_its_parent_and_has_own_turns(path: Path) -> None:
    async def delegate(_: Any) -> str:
        child = ScriptedAmplifierProvider("From the child.")
        named = {"session_id": "child", "parent_id": "session-1"}
        async with session(child, store=path, **named) as host:
            said = [{"role": "user", "content": "what the parent said"}]
            await host.coordinator.get("context").set_messages(said)
            return str(await host.execute("Child, work."))

    provider = ScriptedAmplifierProvider(Reply(calls=[("delegate", {"n": 1})]), "Done.")
    async with session(provider, tool("delegate", delegate), store=path) as host:
        await host.execute("Delegate.")
    parent, child = await records_of(path), await records_of(path, "child")
    (to_child,) = events(parent, "session:linked")
    (to_parent,) = events(child, "session:linked")
    assert (to_child.session, to_child.relation) == ("child", "child")
    assert (to_parent.session, to_parent.relation) == ("session-1", "parent")
    turns = [spans(one, "prompt:submit")[0].turn_id for one in (parent, child)]
    assert turns[0] != turns[1]
    assert [one.turn_id for one in spans(parent, "tool:post")] == turns[:1]


# -- the agent's name ------------------------------------------------------------------------------


CHILD = "0000000000000000-4f1c2d3e4a5b6c7d_explorer"


async def agents(path: Path, name: str) -> list[str | None]:
    return [one.agent for one in events(await records_of(path, name), "prompt:submit")]


@pytest.mark.parametrize("loop", ["basic", "loop-eventctx-events"])
async def test_a_session_is_named_after_the_agent_that_it_was_started_for(
    loop: str, path: Path
) -> None:
    provider = ScriptedAmplifierProvider("Found it.")
    async with session(provider, loop=loop, store=path, session_id=CHILD) as host:
        assert await host.execute("Look.") == "Found it."
    assert await agents(path, CHILD) == ["explorer"]
    # What the host tells goes before it, and others have none.
    for name, data in ((CHILD, {"agent": "coder"}), ("session-1", {})):
        async with session(ScriptedAmplifierProvider(), store=path, session_id=name) as host:
            await host.coordinator.hooks.emit("prompt:submit", data)
            await host.coordinator.hooks.emit("orchestrator:complete", {})
        assert (await agents(path, name))[-1] == data.get("agent")


# -- our orchestrators -----------------------------------------------------------------------------


NAMES = [
    *("prompt:submit", "prompt:complete", "provider:request", "provider:response"),
    *("provider:error", "tool:pre", "tool:post", "tool:error", "plan:start", "plan:end"),
    *("context:pre_compact", "context:post_compact"),
]


async def test_a_turn_is_recorded_once_by_the_one_who_runs_it(path: Path) -> None:
    heard = EventRecorder()
    provider = ScriptedAmplifierProvider(BOTH, "Done.")
    own: Any = {"loop": "loop-eventctx-events", "hooks": dict.fromkeys(NAMES, heard)}
    async with session(provider, tool("read", "aa", "bb"), store=path, **own) as host:
        assert await host.execute("Read both.") == "Done."
    records = await records_of(path)
    recorded = [one for one in types(records) if one in NAMES]
    assert sorted(recorded) == sorted(name for name, _ in heard.events)
    (turn,) = spans(records, "prompt:submit")
    spans_of = {(one.type, one.span_id) for one in records}
    for name, data in heard.events:
        assert (name, data["span_id"]) in spans_of
        assert (data["turn_id"], data["session_id"]) == (turn.turn_id, "session-1")
    assert provider.messages[1][1]["content"][0]["signature"] == "c2lnbmVk"


@LOOPS
async def test_a_provider_that_fails_ends_the_turn_and_the_next_works(
    loop: str, path: Path
) -> None:
    provider = ScriptedAmplifierProvider(ConnectionError("unplugged"), "Here again.")
    async with session(provider, loop=loop, store=path) as host:
        with pytest.raises(RuntimeError, match="unplugged"):
            await host.execute("Hello?")
        assert await host.execute("Hello?") == "Here again."
    records = await records_of(path)
    assert [one.message for one in events(records, "provider:error")] == ["unplugged"]
    first, second = events(records, "prompt:complete")
    assert (first.status, second.status) == ("error", "ok")
    assert "unplugged" in first.error
