"""openai-agents' SQLiteSession. As it configures its database itself: WAL, synchronous FULL."""

from __future__ import annotations

from typing import Any

from agents import SQLiteSession
from agents.run_internal.session_persistence import prepare_input_with_session

from tests.benchmarks.place import Place
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import Message, message

WHAT = {
    "append": "add_items of one item",
    "load": "get_items in a fresh session object",
    "prepare": "prepare_input_with_session, which every run calls",
}


async def measure(place: Place, length: int) -> Samples:
    samples = Samples()
    path = place.path("openai-agents.db")
    session = SQLiteSession("one", path)
    items: list[Any] = [item for number in range(length) for item in _items(message(number))]
    for first in range(0, len(items), 500):
        await session.add_items(items[first : first + 500])
    for number in range(length, length + 100):
        one: Any = _items(message(number))[:1]
        await samples.time("append", lambda: session.add_items(one))  # noqa: B023
    for _ in range(10):
        await samples.time("prepare", lambda: prepare_input_with_session("Go on.", session, None))
    session.close()
    for _ in range(5):
        fresh = SQLiteSession("one", path)
        await samples.time("load", fresh.get_items)
        fresh.close()
    return samples


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
