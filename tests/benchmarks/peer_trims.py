"""Neighbours that trim a list of messages in memory: what they take for a first compaction.

Each function takes the workload's messages and returns what is to be timed, once: it says how many
messages are left. Making a neighbour's own message objects is not timed, and none of them records
what it did; both in their favour. Those that count tokens come down to half of the budget, as
eventctx does. Each raises ImportError where its library is not installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import msgspec

from tests.benchmarks.workload import Message

Trim = Callable[[], int]


def langchain(given: list[Message], budget: int) -> Trim:
    """With a counter as cheap as can be, characters divided by four."""

    def quarter(rows: Iterable[Any]) -> int:
        return sum([len(row.content) for row in rows]) // 4

    return _langchain(given, budget, quarter)


def langchain_counting(given: list[Message], budget: int) -> Trim:
    """With the library's own counter, which counts arguments and ids as well."""
    return _langchain(given, budget, "approximate")


def _langchain(given: list[Message], budget: int, counter: Any) -> Trim:
    from langchain_core.messages import convert_to_messages, trim_messages

    state = convert_to_messages(given)
    most = budget // 2
    return lambda: len(
        trim_messages(state, max_tokens=most, token_counter=counter, start_on="human")
    )


def agent_framework(given: list[Message], budget: int) -> Trim:
    from agent_framework import Content
    from agent_framework import Message as Row
    from agent_framework._compaction import (
        CharacterEstimatorTokenizer,
        TruncationStrategy,
        apply_compaction,
    )

    def row(message: Message) -> Any:
        if message["role"] == "tool":
            call, text = message["tool_call_id"], message["content"]
            return Row("tool", [Content.from_function_result(call, result=text)])
        calls = [
            Content.from_function_call(
                one["id"], one["function"]["name"], arguments=one["function"]["arguments"]
            )
            for one in message.get("tool_calls", ())
        ]
        return Row(message["role"], [message["content"], *calls])

    tokenizer = CharacterEstimatorTokenizer()
    strategy = TruncationStrategy(max_n=budget, compact_to=budget // 2, tokenizer=tokenizer)

    state = [row(message) for message in given]
    return lambda: len(asyncio.run(apply_compaction(state, strategy=strategy, tokenizer=tokenizer)))


def strands(given: list[Message], budget: int) -> Trim:
    from strands.agent.conversation_manager import SlidingWindowConversationManager

    def row(message: Message) -> dict[str, Any]:
        if message["role"] == "tool":
            result = {
                "toolUseId": message["tool_call_id"],
                "content": [{"text": message["content"]}],
                "status": "success",
            }
            return {"role": "user", "content": [{"toolResult": result}]}
        uses = [
            {
                "toolUse": {
                    "toolUseId": one["id"],
                    "name": one["function"]["name"],
                    "input": msgspec.json.decode(one["function"]["arguments"]),
                }
            }
            for one in message.get("tool_calls", ())
        ]
        return {"role": message["role"], "content": [{"text": message["content"]}, *uses]}

    agent: Any = SimpleNamespace(messages=[row(message) for message in given])

    def trim() -> int:
        SlidingWindowConversationManager().apply_management(agent)
        return len(agent.messages)

    return trim


TRIMS = {
    "langchain-core trim_messages, characters / 4": langchain,
    "langchain-core trim_messages, its own counter": langchain_counting,
    "agent-framework TruncationStrategy": agent_framework,
    "strands SlidingWindowConversationManager, 40 messages": strands,
}
