"""Runs an agent in a thread, and tells each checkpoint that is saved. It waits to be killed."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

from eventctx.adapters.langchain import EventctxMiddleware
from eventctx.adapters.langgraph import EventctxSaver
from tests.adapters.graphs import agent_with, asks, run_of

ROUNDS = 12


class Telling(EventctxSaver):
    told: Connection

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        saved = super().put(config, checkpoint, metadata, new_versions)
        count = len(checkpoint["channel_values"].get("messages", []))
        self.told.send((checkpoint["id"], count))
        return saved


def main(store: str, mode: str, told: Connection) -> None:
    """With ``ours`` as mode it is an agent with the middleware."""
    if mode == "ours":
        ours = EventctxMiddleware(store, max_tokens=100_000)
        saver, more = Telling(ours._given, max_tokens=100_000), {"middleware": [ours]}
    else:
        saver, more = Telling(store), {}
    saver.told = told
    agent = agent_with(saver, rounds=ROUNDS, **more)
    while True:
        agent.invoke(asks("go on"), run_of("t"))
