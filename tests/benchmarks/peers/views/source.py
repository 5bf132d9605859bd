"""A neighbour's process as a task's context: messages go in, views come out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventctx.comparison.played import NumberSet, PlayedRequest
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tokens import BY_KIND
from eventctx.projections.evidence import HeldTexts, normalise
from eventctx.testing.tasks import TaskContext
from tests.benchmarks.peers.views import child

Message = dict[str, Any]
ROOT: Final = Path(__file__).parents[4]


class Way(NamedTuple):
    """A neighbour's way: its name, its module here and the kind in it."""

    name: str
    module: str
    kind: str

    @property
    def interpreter(self) -> str:
        """The interpreter that has it, where this one has not."""
        return os.environ.get(f"EVENTCTX_{self.module.upper()}_PYTHON", sys.executable)


WAYS: Final = (
    Way("langchain trim_messages", "langchain", "trim"),
    Way("langchain ClearToolUses", "langchain", "clear"),
    Way("langchain Summarization", "langchain", "summarize"),
    Way("strands SlidingWindow", "strands", "window"),
    Way("strands Summarizing", "strands", "summarize"),
    Way("agent-framework TokenBudget", "agent_framework", "budget"),
    Way("agent-framework Truncation", "agent_framework", "truncate"),
    Way("pydantic-ai SlidingWindow", "pydantic_ai", "window"),
    Way("pydantic-ai ClearToolResults", "pydantic_ai", "clear"),
    Way("OpenHands LLMSummarizing", "openhands", "summarize"),
)


class Process:
    """A neighbour's process. ``missing`` says why there is none."""

    def __init__(self, way: Way) -> None:
        self.way = way
        self._process = subprocess.Popen(
            [way.interpreter, "-m", child.__name__, way.module, way.kind],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        hello = self._answer()
        self.missing: str = hello.get("missing", "")
        self.version: str = hello.get("version", "")

    def begin(self, budget: int) -> Source:
        """A new conversation; the one before ends."""
        self._say(budget)
        return Source(self, budget)

    def context(self) -> TaskContext:
        """It as a context of tasks."""
        return TaskContext(self.way.name, self.begin)

    def view(self, new: Sequence[Message], before: Sequence[Message]) -> list[Message]:
        """The view after these messages; ``before`` is the one before."""
        self._say(new)
        found = self._answer()
        if "missing" in found:
            raise RuntimeError(f"{self.way.name}: {found['missing']}")
        return [*before[: found["same"]], *found["rows"]]

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def _say(self, what: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"missing": "its process ended"}


class Source:
    """One conversation in a neighbour's process, counted as this library counts."""

    def __init__(self, process: Process, budget: int) -> None:
        self._process = process
        self._budget = budget
        self._new: list[Message] = []
        self._rows: list[Message] = []
        self._compactions = 0
        self._known: dict[int, tuple[Message, int, str]] = {}

    def add(self, message: Message) -> None:
        self._new.append(message)

    def request(self) -> PlayedRequest:
        before = self._rows
        self._rows = self._process.view(self._new, before)
        same = 0
        while same < min(len(before), len(self._rows)) and before[same] == self._rows[same]:
            same += 1
        self._compactions += same < len(before)
        self._new = []
        read = [self._read(one) for one in self._rows]
        tokens = sum([size for _, size, _ in read])
        return PlayedRequest(
            before=0,
            tokens=tokens,
            prefix=sum([size for _, size, _ in read[:same]]),
            shown=HeldTexts(NumberSet(), tuple([text for _, _, text in read])),
            compactions=self._compactions,
            floor=tokens > self._budget,
        )

    def rows(self) -> Sequence[Message]:
        return self._rows

    def last(self) -> Message:
        return self._rows[-1]

    def _read(self, row: Message) -> tuple[Message, int, str]:
        # Rows that a view keeps are the same objects, so each is read once.
        known = self._known.get(id(row))
        if known is None:
            known = row, BY_KIND.tokens(read_facts(row)), normalise(row)
            self._known[id(row)] = known
        return known
