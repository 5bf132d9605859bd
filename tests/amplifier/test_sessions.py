"""Whole sessions on the real kernel: what is recorded and sent; compactions that Claude takes."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from amplifier_core import HookResult, ProviderInfo
from amplifier_core.message_models import ChatResponse, ToolCall
from amplifier_core.message_models import Usage as HostUsage
from amplifier_core.models import ToolResult

import eventctx
from eventctx.log.record import Record
from eventctx.messages.tokens import FAMILIES
from eventctx.orchestrators.protocol import Usage
from eventctx.projections.view.entries import CALL_NOT_ENDED
from eventctx.testing import EventRecorder, Hang, Reply, ScriptedAmplifierProvider, ScriptedTool
from eventctx.testing.strict_provider import strict_provider
from tests.amplifier.conversations import Gate, Tool, find_real_module
from tests.amplifier.given import events, records_of, spans, types
from tests.amplifier.hosts import Telling, session, tool
from tests.how_much import some
from tests.long_run import KINDS, PAGE, Model
from tests.orchestrators.providers.server import claude_client

LOOPS = pytest.mark.parametrize("loop", ["basic", "streaming"])


CALLS = [("read", {"path": "a"}), ("read", {"path": "b"})]
BOTH = Reply(calls=CALLS, thinking="hm", usage=Usage(700, 8))


class Answering(Telling):
    """A provider that tells of its answers alone; loop-streaming leaves usage to them."""

    def asked(self, request: Any) -> None:
        return None


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


# -- compactions: told to the host, true to the rules ----------------------------------------------


ROOT = Path(__file__).resolve().parents[2]
TOLD = (
    "context:pre_compact",
    "context:post_compact",
    "context:compaction",
    "context:compact",
)


def talkative(turns: int) -> tuple[ScriptedAmplifierProvider, ScriptedTool]:
    script: list[Any] = []
    for number in range(turns):
        script += [Reply(calls=[("read", {"n": number})]), f"answer {number} " * 40]
    window = {"context_window": 9_000, "max_output_tokens": 1_000}
    tool = ScriptedTool("read", lambda given: f"line {given['n']} " * 300, amplifier=True)
    return ScriptedAmplifierProvider(*script, **window), tool


async def talked(path: Path, hook: Any) -> list[Record]:
    """The records of a session in which twelve turns compact, and the hook hears of it."""
    provider, tool = talkative(12)
    async with session(provider, tool, hooks=dict.fromkeys(TOLD, hook), store=path) as host:
        for number in range(12):
            await host.execute(f"question {number}")
    return await records_of(path)


async def test_a_compaction_is_told_before_and_after_in_both_spellings_with_ids(path: Path) -> None:
    recorder = EventRecorder()
    records = await talked(path, recorder)
    heard = [(name, data) for name, data in recorder.events]
    applied = [one for one in events(records, "context:post_compact") if one.outcome == "applied"]
    assert applied
    assert [name for name, _ in heard] == list(TOLD) * len(applied)
    ended = {one.span_id: one for one in spans(records, "context:post_compact")}
    for (_, before), (_, after), (_, logged), (_, older) in zip(*[iter(heard)] * 4, strict=True):
        record = ended[after["span_id"]]
        for data in (before, after, logged, older):
            assert data["session_id"] == "session-1"
            for name in ("turn_id", "span_id", "parent_span_id", "iteration"):
                assert data[name] == getattr(record, name) is not None
            assert len(json.dumps(data)) < 10_000
        assert before["message_count"] == before["before_messages"] == before["messages_before"]
        assert before["token_count"] == before["before_tokens"] == before["tokens_before"]
        assert after["token_count"] == after["after_tokens"] == after["tokens_after"]
        assert after["message_count"] == after["after_messages"] == after["messages_after"]
        assert after["tokens_before"] - after["tokens_after"] == logged["tokens_saved"] > 0
        assert logged["before_tokens"] == logged["tokens_before"] == before["token_count"]
        assert logged["messages_removed"] == after["removed_messages"]
    # The reference lists the fields of every payload.
    page = (ROOT / "docs" / "reference" / "amplifier.md").read_text(encoding="utf-8")
    emitted = page.partition("## What is emitted")[2].partition("## What does not hold")[0]
    ids = set(re.findall(r"`(\w+)`", emitted.partition("| event")[0]))
    counts = set(re.findall(r"`(\w+)`", emitted.partition("The counts are there")[2]))
    rows = re.findall(r"^\| (`context:.*?) \| .*? \| (.*) \|$", emitted, flags=re.MULTILINE)
    told = {name: set(data) - {"timestamp", "parent_id"} for name, data in heard}
    for names, fields in rows:
        listed = set(re.findall(r"`(\w+)`", fields)) | ids
        listed |= counts if "the counts below" in fields else set()
        for name in re.findall(r"`(context:\w+)`", names):
            assert told.pop(name) == listed, name
    assert told == {}


async def test_a_denial_of_the_host_is_a_veto_that_the_budget_overrules(path: Path) -> None:
    def deny(event: str, data: dict[str, Any]) -> Any:
        denies = event == "context:pre_compact"
        return HookResult(action="deny", reason="not now") if denies else HookResult()

    records = await talked(path, deny)
    begun = events(records, "context:pre_compact")
    assert {one.veto for one in begun} == {"not now"}
    outcomes = {one.trigger: one.outcome for one in events(records, "context:post_compact")}
    assert outcomes == {"threshold": "skipped", "budget": "applied"}


async def test_what_must_stay_is_sent_also_where_it_exceeds_the_budget(path: Path) -> None:
    provider = ScriptedAmplifierProvider("Well.", context_window=12_000, max_output_tokens=1_000)
    async with session(provider, store=path) as host:
        assert await host.execute("much " * 20_000) == "Well."
    (prepared,) = events(await records_of(path), "context:request_prepared")
    assert prepared.floor_sent
    assert prepared.estimator in {one.name for one in FAMILIES.values()}


# -- long runs of which Claude refuses no request -------------------------------------------------


TURNS: Final = some(14, 60)
THINKING: Final[dict[str, dict[str, Any]]] = {
    "claude-haiku-4-5": {"type": "enabled", "budget_tokens": 1_024},
    "claude-sonnet-5-5": {"type": "adaptive"},
}


class Claude:
    """A provider module that sends the rows of a request as Amplifier's own for Claude does."""

    name = "anthropic"

    def __init__(self, client: Any, model: str) -> None:
        self._client = client
        self._model = model

    def get_info(self) -> Any:
        return ProviderInfo(id="a", display_name="a", defaults={"model": self._model})

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return list(response.tool_calls or [])

    async def complete(self, request: Any, **options: Any) -> Any:
        rows = [message.model_dump(exclude_none=True) for message in request.messages]
        named = [{"name": one.name, "input_schema": one.parameters} for one in request.tools or ()]
        asked: Any = {"thinking": THINKING[self._model], "tools": named}
        answer = await self._client.messages.create(
            model=self._model, max_tokens=4_000, messages=[sent(row) for row in rows], **asked
        )
        calls = [
            ToolCall(id=block.id, name=block.name, arguments=dict(block.input))
            for block in answer.content
            if block.type == "tool_use"
        ]
        used = {name: getattr(answer.usage, name) for name in ("input_tokens", "output_tokens")}
        usage = HostUsage(**used, total_tokens=sum(used.values()))
        content: Any = [came(block.model_dump(exclude_none=True)) for block in answer.content]
        return ChatResponse(content=content, tool_calls=calls or None, usage=usage)


def sent(row: dict[str, Any]) -> dict[str, Any]:
    """A row as a message of the Messages API."""
    if row["role"] == "tool":
        kind, call = "tool_result", row["tool_call_id"]
        result = {"type": kind, "tool_use_id": call, "content": row["content"]}
        return {"role": "user", "content": [result]}
    content = row["content"]
    if isinstance(content, list):
        content = [
            {**{key: value for key, value in block.items() if key != "visibility"}, "type": kind}
            for block in content
            for kind in [block["type"].replace("tool_call", "tool_use")]
        ]
    return {"role": row["role"], "content": content}


def came(block: dict[str, Any]) -> dict[str, Any]:
    """A block of an answer as Amplifier has it."""
    return {**block, "type": block["type"].replace("tool_use", "tool_call")}


@pytest.mark.parametrize("model", THINKING)
@pytest.mark.parametrize("loop", ["basic", "streaming", "loop-basic", "loop-streaming"])
async def test_a_long_run_is_not_refused(
    loop: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("anthropic", reason="extra: eventctx[anthropic]")
    if loop.startswith("loop-"):
        find_real_module(loop, monkeypatch)
    script = Model()
    kinds = [one for one in KINDS.values() if not (one.needs_server_tools or one.stops_after)]

    def fails(given: dict[str, Any]) -> Any:
        raise ValueError("torn")

    tools = [
        Tool("read", lambda given: ToolResult(output=PAGE), Gate()),
        Tool("fail", fails, Gate()),
    ]
    config = {"max_tokens": 7_000, "reserve_tokens": 0}
    async with (
        strict_provider(script) as server,
        claude_client(server.url) as client,
        session(Claude(client, model), *tools, loop=loop, config=config) as host,
    ):
        for number in range(TURNS):
            script.begin(kinds[number % len(kinds)], number)
            await host.execute(f"Question {number}: read and tell me. " + "please " * 20)
    assert server.refusals == []
    assert len(server.requests) > 2 * TURNS
    assert any("[Index" in str(one.body) for one in server.requests), "it never compacted"
