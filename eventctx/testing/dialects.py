"""Answers, results and tool definitions in the form of each dialect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.orchestrators.protocol import ToolDefinition, ToolOutcome
from eventctx.testing.script import Reply, requests_of

Dialect = Literal["anthropic", "chat", "amplifier"]


def answer_message(reply: Reply, dialect: Dialect) -> dict[str, Any]:
    """A model's answer as a message for the context."""
    if dialect == "anthropic":
        blocks = [*_thought(reply), *_served(reply), *_text(reply), *_used(reply)]
        return {"role": "assistant", "content": blocks}
    if reply.server_calls:
        raise InvalidSetting(f"server_calls: expected none in the dialect {dialect!r}, found some")
    if dialect == "amplifier":
        return _amplifier(reply)
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.thinking is not None:
        message["reasoning_content"] = reply.thinking
    if reply.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": _function(call.name, call.arguments)}
            for call in requests_of(reply)
        ]
    return message


def finish_reason(reply: Reply, dialect: Dialect) -> str:
    """The script's finish reason, else the dialect's usual one for such an answer."""
    if reply.finish_reason is not None:
        return reply.finish_reason
    if dialect == "chat":
        return "tool_calls" if reply.calls else "stop"
    if not reply.calls and any(call.result is None for call in reply.server_calls):
        return "pause_turn"
    return "tool_use" if reply.calls else "end_turn"


def result_message(outcome: ToolOutcome, dialect: Dialect) -> dict[str, Any]:
    """The outcome of a tool call as a message for the context."""
    call = outcome.call
    if dialect == "anthropic":
        block: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": outcome.content,
        }
        if outcome.is_error:
            block["is_error"] = True
        return {"role": "user", "content": [block]}
    message = {"role": "tool", "tool_call_id": call.id, "content": outcome.content}
    return {**message, "name": call.name} if dialect == "amplifier" else message


def definition(tool: ToolDefinition, dialect: Dialect) -> dict[str, Any]:
    """A tool's definition as it is sent in a request."""
    described = {"name": tool.name, "description": tool.description}
    parameters = dict(tool.parameters)
    if dialect == "anthropic":
        return {**described, "input_schema": parameters}
    if dialect == "chat":
        return {"type": "function", "function": {**described, "parameters": parameters}}
    return {**described, "parameters": parameters}


def _thought(reply: Reply) -> list[dict[str, Any]]:
    if reply.thinking is None:
        return []
    return [{"type": "thinking", "thinking": reply.thinking, "signature": reply.signature}]


def _served(reply: Reply) -> list[dict[str, Any]]:
    """Calls of the provider's own tools, each with its result unless it is open."""
    blocks: list[dict[str, Any]] = []
    for call in reply.server_calls:
        if call.arguments is not None:
            named = {"type": "server_tool_use", "id": call.id, "name": call.name}
            blocks.append({**named, "input": dict(call.arguments)})
        if call.result is not None:
            name = "tool_search" if call.name.startswith("tool_search") else call.name
            kind = f"{name}_tool_result"
            blocks.append({"type": kind, "tool_use_id": call.id, "content": call.result})
    return blocks


def _text(reply: Reply) -> list[dict[str, Any]]:
    return [{"type": "text", "text": reply.text}] if reply.text else []


def _used(reply: Reply) -> list[dict[str, Any]]:
    return [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in requests_of(reply)
    ]


def _function(name: str, arguments: dict[str, Any]) -> dict[str, str]:
    return {"name": name, "arguments": msgspec.json.encode(arguments).decode()}


def _amplifier(reply: Reply) -> dict[str, Any]:
    """The message that Amplifier's loops store; it holds calls and thinking twice."""
    message: dict[str, Any] = {"role": "assistant", "content": amplifier_blocks(reply)}
    calls: Sequence[Any] = requests_of(reply)
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "tool": call.name, "arguments": call.arguments} for call in calls
        ]
    for block in _thought(reply):
        message["thinking_block"] = {**block, "visibility": None}
    return message


def amplifier_blocks(reply: Reply) -> list[dict[str, Any]]:
    """The content blocks of an Amplifier ``ChatResponse``."""
    called = [
        {"type": "tool_call", "id": call.id, "name": call.name, "input": call.arguments}
        for call in requests_of(reply)
    ]
    return [{**block, "visibility": None} for block in (*_thought(reply), *_text(reply), *called)]
