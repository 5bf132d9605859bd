"""Exchanges with the real APIs, recorded by pydantic-ai: the same requests, the same answers.

What a recorded program sent and what our providers send are compared in what matters: system,
tools and messages, without what says nothing (``is_error: false``) or is in two spellings (a
text and a block with that text).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from eventctx import Context
from eventctx.orchestrators.protocol import Answer, Ids, Request, ToolDefinition, ToolOutcome
from tests.orchestrators.providers.conftest import Api
from tests.orchestrators.providers.kits import ANTHROPIC, CHAT, RESPONSES, Kit

Body = dict[str, Any]
IDS = Ids("s")
FILES = {
    "test_anthropic_model_thinking_part_redacted.yaml": ANTHROPIC,
    "test_anthropic_thinking_roundtrip_wire_stable[ag_ui-0_1_13].yaml": ANTHROPIC,
    "test_model_sees_multiple_images[anthropic].yaml": ANTHROPIC,
    "test_multiple_parallel_tool_calls.yaml": ANTHROPIC,
    "test_deepseek_deferred_capability_with_thinking.yaml": CHAT,
    "test_tool_search_eval[openai-chat].yaml": CHAT,
    "test_openai_responses_compact_messages.yaml": RESPONSES,
}


def exchanges(recorded: Path, file: str) -> list[tuple[Body, Body]]:
    tape = yaml.safe_load((recorded / "provider" / file).read_text(encoding="utf-8"))
    return [
        (one["request"]["parsed_body"], one["response"]["parsed_body"])
        for one in tape["interactions"]
        if not one["request"]["uri"].endswith("/compact")
    ]


def options_of(kit: Kit, request: Body) -> Body:
    """How our provider is made to send what the recorded program sent beside the messages."""
    options = {key: request[key] for key in ("thinking", "tool_choice") if key in request}
    if kit is RESPONSES:
        options |= {"instructions": request["instructions"], "encrypted_reasoning": False}
    return options


def tools_of(request: Body) -> tuple[ToolDefinition, ...]:
    return tuple(
        ToolDefinition(
            tool["name"],
            tool.get("description", ""),
            tool.get("input_schema") or tool.get("parameters") or {},
        )
        for tool in (one.get("function", one) for one in request.get("tools", ()))
    )


def rows_of(kit: Kit, request: Body) -> list[Body]:
    """The recorded request's messages as a context holds them."""
    if kit is RESPONSES:
        return list(request["input"])
    system = [{"role": "system", "content": request["system"]}] if "system" in request else []
    return [*system, *request["messages"]]


def plain(kit: Kit, request: Body) -> Body:
    """A request in what matters, in one spelling."""
    tools = [
        {k: v for k, v in (tool.get("function") or tool).items() if k != "strict"}
        for tool in request.get("tools", ())
    ]
    rows = request["input"] if kit is RESPONSES else request["messages"]
    matters = {key: request.get(key) for key in ("system", "instructions", "thinking")}
    return {**matters, "tools": tools, "rows": [_plain_row(row) for row in rows]}


def _plain_row(row: Body) -> Body:
    content = row.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = [
        {"type": "text", "text": b["text"]}
        if b["type"] == "output_text"
        else {k: v for k, v in b.items() if (k, v) != ("is_error", False)}
        for b in content or ()
    ]
    said = {k: v for k, v in row.items() if k not in ("content", "status") and v is not None}
    if said.get("type") == "message":
        del said["type"], said["id"]
    return {**said, "content": blocks} if blocks else said


STEPS = [(file, 0) for file in FILES]
STEPS += [("test_deepseek_deferred_capability_with_thinking.yaml", 1)]
STEPS += [("test_tool_search_eval[openai-chat].yaml", place) for place in (1, 3, 4)]
"""Exchanges that another one follows, by the place of the first."""


@pytest.mark.parametrize(("file", "place"), STEPS)
async def test_a_context_brings_forth_the_recorded_following_request(
    ctx: Context, recorded_sessions: Path, api: Api, file: str, place: int
) -> None:
    kit = FILES[file]
    (sent, answered), (following, last) = exchanges(recorded_sessions, file)[place : place + 2]
    provider = api.connect(kit, answered, last, **options_of(kit, sent))
    await ctx.add_messages(rows_of(kit, sent))
    view = await ctx.get_messages_for_request(provider=provider)
    answer = await provider.complete(Request(view, IDS, tools_of(sent)))
    await ctx.add_messages([answer.message, *answer.more])
    for row in rows_of(kit, following)[len(rows_of(kit, sent)) + 1 :]:
        await ctx.add_messages(_as_added(provider, answer, row))
    view = await ctx.get_messages_for_request(provider=provider)
    await provider.complete(Request(view, IDS, tools_of(following)))
    first, second = api.bodies
    assert plain(kit, first) == plain(kit, sent)
    assert plain(kit, second) == plain(kit, following)


def _as_added(provider: Any, answer: Answer, row: Body) -> list[Body]:
    """A recorded row as an orchestrator adds it: text results are made by the provider."""
    calls = {call.id: call for call in answer.calls}
    if row.get("tool_call_id") in calls:
        return [provider.result_message(ToolOutcome(calls[row["tool_call_id"]], row["content"]))]
    blocks = row["content"] if isinstance(row.get("content"), list) else []
    results = [b for b in blocks if b["type"] == "tool_result" and isinstance(b["content"], str)]
    return [
        provider.result_message(ToolOutcome(calls[b["tool_use_id"]], b["content"])) for b in results
    ] or [row]
