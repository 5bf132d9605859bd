"""Runs an agent in a thread, and says each checkpoint that is saved. It waits to be killed.

``python -m tests.programs.thread_to_kill STORE MODE``, with ``ours`` as mode with the middleware.
"""

from __future__ import annotations

import sys
from typing import Any

from eventctx.adapters.langchain import EventctxMiddleware
from eventctx.adapters.langgraph import EventctxSaver
from tests.adapters.graphs import agent_with, asks, run_of

ROUNDS = 12


class Telling(EventctxSaver):
    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        saved = super().put(config, checkpoint, metadata, new_versions)
        count = len(checkpoint["channel_values"].get("messages", []))
        sys.stdout.write(f"{checkpoint['id']} {count}\n")
        sys.stdout.flush()
        return saved


def main(store: str, mode: str) -> None:
    if mode == "ours":
        ours = EventctxMiddleware(store, max_tokens=100_000)
        saver, more = Telling(ours._given, max_tokens=100_000), {"middleware": [ours]}
    else:
        saver, more = Telling(store), {}
    agent = agent_with(saver, rounds=ROUNDS, **more)
    while True:
        agent.invoke(asks("go on"), run_of("t"))


if __name__ == "__main__":
    main(*sys.argv[1:])
