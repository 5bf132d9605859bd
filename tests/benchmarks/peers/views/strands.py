"""Strands' conversation managers, on its own message format."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from strands.agent.conversation_manager import (
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.types.exceptions import ContextWindowOverflowException

from tests.benchmarks.peers.views.child import THRESHOLD, Message, Summarizer, size

PACKAGE = "strands-agents"

MOST_TRIES = 40
"""Reductions for one request: a summary of summaries may not get smaller."""


class Managed:
    """A conversation that a manager reduces when it is due, and as often as it overflows."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self.summarizer = Summarizer(budget)
        self._system: list[Message] = []
        self.agent: Any = SimpleNamespace(messages=[], model=None)
        self.manager: Any = self.make()

    def make(self) -> Any:
        return SlidingWindowConversationManager(per_turn=True)

    async def view(self, new: list[Message]) -> list[Message]:
        self.summarizer.hear(new)
        for one in new:
            if one["role"] == "system":
                self._system.append(one)
            else:
                self.agent.messages.append(_own(one))
        self.manager.apply_management(self.agent)
        limit = self._budget * THRESHOLD
        for _ in range(MOST_TRIES):
            if size(self._rows()) <= limit:
                break
            before = json.dumps(self.agent.messages)
            try:
                self.manager.reduce_context(
                    self.agent, ContextWindowOverflowException("too many tokens")
                )
            except Exception:  # it may raise whatever it likes where it cannot go on
                break
            if json.dumps(self.agent.messages) == before:
                break
        return self._rows()

    def _rows(self) -> list[Message]:
        return [*self._system, *[row for one in self.agent.messages for row in _chat(one)]]


class Summarizing(Managed):
    """The summarizing manager; its model's answer is scripted."""

    def make(self) -> Any:
        manager: Any = SummarizingConversationManager()

        def answer(messages: list[Any], agent: Any) -> Any:
            rows = [row for one in messages for row in _chat(one)]
            text = self.summarizer.summary("\n".join([row["content"] for row in rows]))
            return {"role": "user", "content": [{"text": text}]}

        manager._generate_summary = answer
        return manager


def _own(message: Message) -> dict[str, Any]:
    if message["role"] == "tool":
        result = {
            "toolUseId": message["tool_call_id"],
            "status": "success",
            "content": [{"text": message["content"]}],
        }
        return {"role": "user", "content": [{"toolResult": result}]}
    content: list[dict[str, Any]] = [{"text": message["content"]}] if message["content"] else []
    for call in message.get("tool_calls") or ():
        use = {
            "toolUseId": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        content.append({"toolUse": use})
    return {"role": message["role"], "content": content}


def _chat(message: dict[str, Any]) -> list[Message]:
    rows: list[Message] = []
    texts = [one["text"] for one in message["content"] if "text" in one]
    calls = []
    for one in message["content"]:
        if "toolResult" in one:
            result = one["toolResult"]
            text = "\n".join([part.get("text", "") for part in result["content"]])
            row = {"role": "tool", "tool_call_id": result["toolUseId"], "content": text}
            rows.append(row)
        elif "toolUse" in one:
            use = one["toolUse"]
            function = {"name": use["name"], "arguments": json.dumps(use["input"])}
            calls.append({"id": use["toolUseId"], "type": "function", "function": function})
    if texts or calls:
        row = {"role": message["role"], "content": "\n".join(texts)}
        rows.append({**row, "tool_calls": calls} if calls else row)
    return rows


KINDS = {"window": Managed, "summarize": Summarizing}
