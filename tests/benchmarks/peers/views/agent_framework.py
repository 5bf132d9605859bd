"""Microsoft's Agent Framework: results collapsed first, then the oldest groups left out."""

from __future__ import annotations

import json
from typing import Any

from agent_framework import Content
from agent_framework import Message as OwnMessage
from agent_framework._compaction import (
    SlidingWindowStrategy,
    TokenBudgetComposedStrategy,
    ToolResultCompactionStrategy,
    TruncationStrategy,
    apply_compaction,
)

from tests.benchmarks.peers.views.child import THRESHOLD, Message, tokens_of

PACKAGE = "agent-framework-core"


class Tokenizer:
    """The counter that all neighbours get."""

    def count_tokens(self, text: str) -> int:
        return tokens_of(text)


class Composed:
    """A budget over two strategies: results become texts, then the oldest groups go."""

    def __init__(self, budget: int) -> None:
        self._messages: list[OwnMessage] = []
        self._strategy = self.make(int(budget * THRESHOLD))

    def make(self, limit: int) -> Any:
        return TokenBudgetComposedStrategy(
            token_budget=limit,
            tokenizer=Tokenizer(),
            strategies=[
                ToolResultCompactionStrategy(keep_last_tool_call_groups=4),
                SlidingWindowStrategy(keep_last_groups=20),
            ],
        )

    async def view(self, new: list[Message]) -> list[Message]:
        self._messages += [_own(one) for one in new]
        shown = await apply_compaction(
            self._messages, strategy=self._strategy, tokenizer=Tokenizer()
        )
        return [row for one in shown for row in _chat(one)]


class Truncating(Composed):
    """The oldest groups go until half of the budget is free."""

    def make(self, limit: int) -> Any:
        return TruncationStrategy(max_n=limit, compact_to=limit // 2, tokenizer=Tokenizer())


def _own(message: Message) -> OwnMessage:
    if message["role"] == "tool":
        content = Content.from_function_result(message["tool_call_id"], result=message["content"])
        return OwnMessage("tool", [content])
    contents = [Content.from_text(message["content"])] if message["content"] else []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        contents.append(
            Content.from_function_call(
                call["id"], function["name"], arguments=function["arguments"]
            )
        )
    return OwnMessage(message["role"], contents)


def _chat(message: OwnMessage) -> list[Message]:
    texts, calls, rows = [], [], []
    for one in message.contents:
        if one.type == "function_result":
            result = one.result if isinstance(one.result, str) else json.dumps(one.result)
            rows.append({"role": "tool", "tool_call_id": one.call_id, "content": result})
        elif one.type == "function_call":
            arguments = one.arguments
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            function = {"name": one.name, "arguments": text}
            calls.append({"id": one.call_id, "type": "function", "function": function})
        elif one.type == "text":
            texts.append(one.text or "")
    if texts or calls:
        row: Message = {"role": str(message.role), "content": "\n".join(texts)}
        rows.insert(0, {**row, "tool_calls": calls} if calls else row)
    return rows


KINDS = {"budget": Composed, "truncate": Truncating}
