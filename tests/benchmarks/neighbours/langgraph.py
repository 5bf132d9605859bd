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

from tests.benchmarks.neighbours.child import Message

PACKAGE = "langgraph-checkpoint-sqlite"
WHAT = {
    "append": "put of the state with one message more",
    "load": "get_tuple over a fresh connection",
    "prepare": "convert_to_openai_messages of the state",
}
_THREAD: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}


async def opened(folder: Path, messages: list[Message]) -> LangGraph:
    made = LangGraph(folder / "langgraph.db", convert_to_messages(messages))
    made.put()
    return made


class LangGraph:
    def __init__(self, path: Path, state: list[Any]) -> None:
        self._path = path
        self._state = state
        self._saver = SqliteSaver(_connected(path))
        self._config = _THREAD
        self._step = 0

    def put(self) -> None:
        self._step += 1
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": self._state}
        checkpoint["channel_versions"] = {"messages": self._step}
        step: Any = {"source": "loop", "step": self._step, "parents": {}}
        self._config = self._saver.put(self._config, checkpoint, step, {"messages": self._step})

    def item(self, message: Message) -> None:
        self._state += convert_to_messages([message])

    async def append(self, item: None) -> None:
        self.put()

    async def fresh(self) -> SqliteSaver:
        return SqliteSaver(_connected(self._path))

    async def load(self, fresh: SqliteSaver) -> None:
        fresh.get_tuple(_THREAD)

    async def prepare(self) -> None:
        convert_to_openai_messages(self._state)


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("PRAGMA synchronous=FULL")
    return connection
