"""Compactions on the real kernel: told to the host, true to the rules, taken by Claude."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from amplifier_core import HookResult, ProviderInfo
from amplifier_core.message_models import ChatResponse, ToolCall, Usage
from amplifier_core.models import ToolResult

from eventctx.log.record import Record
from eventctx.messages.tokens import FAMILIES
from eventctx.testing import EventRecorder, Reply, ScriptedAmplifierProvider, ScriptedTool
from eventctx.testing.strict_provider import strict_provider
from tests.amplifier.conversations import Gate, Tool, find_real_module
from tests.amplifier.given import events, records_of, spans
from tests.amplifier.hosts import session
from tests.how_much import some
from tests.long_run import KINDS, PAGE, Model
from tests.orchestrators.providers.server import claude_client

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("context:pre_compact", "context:post_compact", "context:compaction", "context:compact")


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
    async with session(provider, tool, hooks=dict.fromkeys(NAMES, hook), store=path) as host:
        for number in range(12):
            await host.execute(f"question {number}")
    return await records_of(path)


async def test_a_compaction_is_told_before_and_after_in_both_spellings_with_ids(path: Path) -> None:
    recorder = EventRecorder()
    records = await talked(path, recorder)
    heard = [(name, data) for name, data in recorder.events]
    applied = [one for one in events(records, "context:post_compact") if one.outcome == "applied"]
    assert applied
    assert [name for name, _ in heard] == list(NAMES) * len(applied)
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
        usage = Usage(**used, total_tokens=sum(used.values()))
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
