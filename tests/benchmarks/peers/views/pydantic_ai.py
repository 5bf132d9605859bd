"""Pydantic AI's harness: the compactions that need no model, on its own message format."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai_harness.compaction import ClearToolResults, SlidingWindowCompaction

from tests.benchmarks.peers.views.child import THRESHOLD, Message, size, tokens_of

PACKAGE = "pydantic-ai-harness"


class Compacted:
    """A run's history, edited by a capability when it exceeds the threshold; edits persist."""

    def __init__(self, budget: int) -> None:
        self._limit = int(budget * THRESHOLD)
        self._system: list[Message] = []  # an agent's instructions are no part of its history
        self._messages: list[ModelMessage] = []
        self._capability: Any = self.make(budget)

    def make(self, budget: int) -> Any:
        return SlidingWindowCompaction(
            max_tokens=self._limit, keep_tokens=budget // 2, tokenizer=tokens_of
        )

    async def view(self, new: list[Message]) -> list[Message]:
        self._system += [one for one in new if one["role"] == "system"]
        self._messages += [_own(one) for one in new if one["role"] != "system"]
        if size(rows := self._rows()) > self._limit:
            self._messages = [
                *await self._capability.compact(self._messages, _context(self._messages))
            ]
            rows = self._rows()
        return rows

    def _rows(self) -> list[Message]:
        return [*self._system, *[row for one in self._messages for row in _chat(one)]]


class Clearing(Compacted):
    """Old results go, three pairs stay: its defaults."""

    def make(self, budget: int) -> Any:
        return ClearToolResults(max_tokens=self._limit, tokenizer=tokens_of)


def _context(messages: list[ModelMessage]) -> Any:
    return SimpleNamespace(messages=messages, deps=None, model=None, tracer=None)


_IDS: dict[str, str] = {}


def _own(message: Message) -> ModelMessage:
    role, text = message["role"], message["content"]
    if role == "user":
        return ModelRequest([UserPromptPart(text)])
    if role == "tool":
        call_id = message["tool_call_id"]
        return ModelRequest([ToolReturnPart(_IDS.get(call_id, "tool"), text, call_id)])
    parts: list[Any] = [TextPart(text)] if text else []
    for call in message.get("tool_calls") or ():
        _IDS[call["id"]] = call["function"]["name"]
        function = call["function"]
        parts.append(ToolCallPart(function["name"], function["arguments"], call["id"]))
    return ModelResponse(parts)


def _chat(message: ModelMessage) -> list[Message]:
    if isinstance(message, ModelResponse):
        texts = [one.content for one in message.parts if isinstance(one, TextPart)]
        calls = [
            {
                "id": one.tool_call_id,
                "type": "function",
                "function": {"name": one.tool_name, "arguments": one.args_as_json_str()},
            }
            for one in message.parts
            if isinstance(one, ToolCallPart)
        ]
        row: Message = {"role": "assistant", "content": "\n".join(texts)}
        return [{**row, "tool_calls": calls} if calls else row]
    rows: list[Message] = []
    for part in message.parts:
        text = part.content if isinstance(part.content, str) else str(part.content)
        if isinstance(part, ToolReturnPart):
            rows.append({"role": "tool", "tool_call_id": part.tool_call_id, "content": text})
        else:
            rows.append({"role": "user", "content": text})
    return rows


KINDS = {"window": Compacted, "clear": Clearing}
