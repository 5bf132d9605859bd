"""One neighbour's views in a process of its own.

It imports the neighbour and nothing of this library, so any interpreter that has the neighbour runs
it. A line of input is a budget, which begins a conversation, or new messages in the chat dialect;
a line of output is the view then, as the number of rows that are as in the view before, and the
rest.
"""

from __future__ import annotations

import asyncio
import html
import json
import logging
import os
import sys
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import Any, Protocol

Message = dict[str, Any]

CHARACTERS = 2.4
"""Characters of a token of the generated tasks, by this library's estimator: neighbours that take a
counter count so, and the budgets of all mean the same."""

THRESHOLD = 0.92
"""The share of the budget at which neighbours are told to act: that of this library."""

SUMMARY = 0.2
"""The share of the budget that a scripted summary takes at most."""


class Viewer(Protocol):
    """A conversation under a neighbour's management."""

    async def view(self, new: list[Message]) -> list[Message]:
        """The messages of the next request, after these were added."""


def tokens_of(text: str) -> int:
    """The size of a text."""
    return int(len(text) / CHARACTERS)


def size(messages: list[Message]) -> int:
    """The size of messages in the chat dialect."""
    return sum(
        [tokens_of(f"{one.get('content')}{one.get('tool_calls') or ''}") + 4 for one in messages]
    )


class Summarizer:
    """Stands for a model that summarizes, at its best: what persons and agent said, word for word.

    Of a prompt it takes every text that it has heard before, in an earlier summary, too; where that
    is more than a share of the budget, the newest.
    """

    def __init__(self, budget: int) -> None:
        self._room = int(budget * SUMMARY * CHARACTERS)
        self._heard: dict[str, str] = {}

    def hear(self, messages: list[Message]) -> None:
        """Note what was said, results left out."""
        for one in messages:
            if one["role"] in ("user", "assistant") and one["content"]:
                text = " ".join(one["content"].split())
                self._heard[one["content"].splitlines()[0][:60]] = text[:1_000]

    def summary(self, prompt: str) -> str:
        """The answer to a prompt."""
        prompt = html.unescape(prompt)
        said = [text for start, text in self._heard.items() if start in prompt]
        room, found = self._room, []
        for text in reversed(said):
            room -= len(text) + 1
            if room < 0:
                break
            found.append(text)
        return "Summary of what was said:\n" + "\n".join(reversed(found))


async def serve(module: str, kind: str) -> None:
    """Answer until the input ends."""
    # What a library prints must not get between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(found: dict[str, Any]) -> None:
        print(json.dumps(found), file=out, flush=True)

    try:
        peer: Any = import_module(f"tests.benchmarks.peers.views.{module}")
    except ImportError as error:
        answer({"missing": str(error)})
        return
    answer({"version": f"{peer.PACKAGE} {version(peer.PACKAGE)}"})
    viewer: Viewer
    before: list[Message] = []
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        if isinstance(asked, int):
            viewer, before = peer.KINDS[kind](asked), []
            continue
        rows = await viewer.view(asked)
        same = 0
        while same < min(len(rows), len(before)) and rows[same] == before[same]:
            same += 1
        answer({"same": same, "rows": rows[same:]})
        before = rows


if __name__ == "__main__":
    # Neighbours tell of things that have nothing to do with what is measured.
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    asyncio.run(serve(sys.argv[1], sys.argv[2]))
