"""langgraph-checkpoint-sqlite, with the messages as the one channel of the state.

An append is one ``put`` of the whole state, as at the end of a step of a running graph; the
``get`` before it, which an append from outside of a graph needs, is left out.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from langchain_core.messages import convert_to_messages, convert_to_openai_messages
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from tests.benchmarks.place import Place
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import Message, messages

WHAT = {
    "append": "put of the state with one message more",
    "load": "get_tuple over a fresh connection",
    "prepare": "convert_to_openai_messages of the loaded state",
}


async def measure(place: Place, length: int) -> Samples:
    samples = Samples()
    path = place.path("langgraph.db")
    connection = sqlite3.connect(path)
    saver = SqliteSaver(connection)
    config: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
    repeats = 30 if length <= 1000 else 7
    made: list[Message] = messages(length + repeats)
    state: list[Any] = convert_to_messages(made)
    for number in range(repeats):
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": state[: length + number]}
        checkpoint["channel_versions"] = {"messages": number + 1}
        step: Any = {"source": "loop", "step": number, "parents": {}}

        def put() -> None:
            nonlocal config
            config = saver.put(config, checkpoint, step, {"messages": number + 1})  # noqa: B023

        samples.time_call("append", put)
    connection.close()
    for _ in range(5):
        connection = sqlite3.connect(path)
        fresh = SqliteSaver(connection)
        thread: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
        found: Any = samples.time_call("load", lambda: fresh.get_tuple(thread))  # noqa: B023
        held = found.checkpoint["channel_values"]["messages"]
        samples.time_call("prepare", lambda: convert_to_openai_messages(held))  # noqa: B023
        connection.close()
    return samples
