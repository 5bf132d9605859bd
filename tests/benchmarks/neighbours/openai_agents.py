"""openai-agents' SQLiteSession. It configures its database itself: WAL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents import SQLiteSession
from agents.run_internal.session_persistence import prepare_input_with_session

from tests.benchmarks.neighbours.child import Message, Neighbour

PACKAGE = "openai-agents"
WHAT = {
    "append": "add_items of one item",
    "load": "get_items in a fresh session object",
    "prepare": "prepare_input_with_session, which every run calls",
}


async def opened(folder: Path, messages: list[Message]) -> Neighbour:
    path = folder / "openai-agents.db"
    session = SQLiteSession("one", path)
    items: list[Any] = [item for one in messages for item in _items(one)]
    for first in range(0, len(items), 500):
        await session.add_items(items[first : first + 500])
    return Neighbour(
        item=lambda message: _items(message)[:1],
        append=session.add_items,
        fresh=lambda: SQLiteSession("one", path),
        load=lambda fresh: fresh.get_items(),
        prepare=lambda: prepare_input_with_session("Go on.", session, None),
    )


def _items(made: Message) -> list[Message]:
    """The message as items of the Responses API, which is what this session holds."""
    if made["role"] == "tool":
        call = made["tool_call_id"]
        return [{"type": "function_call_output", "call_id": call, "output": made["content"]}]
    items: list[Message] = [{"role": made["role"], "content": made["content"]}]
    items += [
        {"type": "function_call", "call_id": call["id"], **call["function"]}
        for call in made.get("tool_calls", ())
    ]
    return items
