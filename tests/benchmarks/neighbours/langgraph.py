"""langgraph-checkpoint-sqlite, with the messages as the one channel of the state.

An append is one ``put`` of the whole state, as at the end of a step of a running graph; the
``get`` before it, which an append from outside of a graph needs, is left out.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from langchain_core.messages import convert_to_messages, convert_to_openai_messages
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from tests.benchmarks.neighbours.child import Message, Neighbour

PACKAGE = "langgraph-checkpoint-sqlite"
WHAT = {
    "append": "put of the state with one message more",
    "load": "get_tuple over a fresh connection",
    "prepare": "convert_to_openai_messages of the state",
}
_THREAD: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}


async def opened(folder: Path, messages: list[Message]) -> Neighbour:
    path = folder / "langgraph.db"
    saver, config, step = SqliteSaver(_connected(path)), _THREAD, 0
    state: list[Any] = []

    def put(more: list[Any]) -> None:
        nonlocal config, step
        state.extend(more)
        step += 1
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": state}
        checkpoint["channel_versions"] = {"messages": step}
        facts: Any = {"source": "loop", "step": step, "parents": {}}
        config = saver.put(config, checkpoint, facts, {"messages": step})

    put(convert_to_messages(messages))
    return Neighbour(
        item=lambda message: convert_to_messages([message]),
        append=put,
        fresh=lambda: SqliteSaver(_connected(path)),
        load=lambda fresh: fresh.get_tuple(_THREAD),
        prepare=lambda: convert_to_openai_messages(state),
    )


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA synchronous=FULL")
    return connection
