"""What an agent of a task reads: the messages of one request, and nothing else.

The agent keeps nothing from one request to the next. It reads every word of the view, as a model
with perfect attention would, whoever said it: a message, a result, a shortened one, a line of a
summary. What is not there it may look up with the recall tool, in words that it knows; else it
guesses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

from eventctx.messages.recall_text import QUOTED, TOOL_NAME

Message = dict[str, Any]
Kind = Literal["person", "paste", "agent", "call", "result", "bulk"]
"""Where a fact was: in a person's words, in a text that a person pasted, in the agent's own words
or calls, in the result of a deed, in one of many results that were gone through."""

Where = Literal["view", "recall", "nowhere"]

_OF_PROGRAMS: Final = ("[", "<", "(", "#", "Here is a summary", "Summary", "Conversation summary")
"""Beginnings of the texts that programs put in a person's place: summaries, indexes, notices."""


class AgentCall(NamedTuple):
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]

    @property
    def text(self) -> str:
        return f"{self.name} {json.dumps(self.arguments)}"


class Say(NamedTuple):
    """The agent's answer to the person, which ends its turn."""

    text: str


class Do(NamedTuple):
    """A call, and the words before it."""

    call: AgentCall
    text: str = ""


Action = Say | Do


def do(name: str, text: str = "", /, **arguments: Any) -> Do:
    """A call with these arguments."""
    return Do(AgentCall(name, arguments), text)


class ReadRow(NamedTuple):
    """A message as it is read."""

    role: str
    text: str
    calls: tuple[AgentCall, ...] = ()

    @property
    def by_person(self) -> bool:
        return self.role == "user" and bool(self.text) and not self.text.startswith(_OF_PROGRAMS)


class Sought(NamedTuple):
    """A fact that the agent looked for, and where it found it."""

    fact: str
    kind: Kind
    where: Where


class MissingFact(Exception):
    """The view lacks a fact, and the agent calls the recall tool: ends the reading of this view."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(arguments)
        self.arguments = arguments


class AgentView:
    """The messages of one request; ``rows`` makes them when more than the last one is read.

    ``sought`` is filled as the agent looks for facts.
    """

    def __init__(
        self, rows: Callable[[], Sequence[Message]], last: Message, *, recalls: bool = False
    ) -> None:
        self._rows = rows
        self.last = read_row(last)
        self.recalls = recalls
        self.sought: list[Sought] = []

    @cached_property
    def rows(self) -> list[ReadRow]:
        """All messages, in order."""
        return [read_row(one) for one in self._rows()]

    @cached_property
    def text(self) -> str:
        """All that is in view, calls included."""
        return "\n".join(
            [part for row in self.rows for part in (row.text, *[one.text for one in row.calls])]
        )

    @cached_property
    def _asked_at(self) -> int:
        places = [at for at, row in enumerate(self.rows) if row.by_person]
        return places[-1] if places else -1

    @property
    def request(self) -> str:
        """The latest words of the person; empty if they are not in view."""
        if self.last.by_person:
            return self.last.text
        return self.rows[self._asked_at].text if self._asked_at >= 0 else ""

    def calls(self, name: str, *, of_request: bool = False) -> list[dict[str, Any]]:
        """The arguments of the calls of a tool; ``of_request``: since the person's latest words."""
        rows = self.rows[self._asked_at + 1 :] if of_request else self.rows
        return [one.arguments for row in rows for one in row.calls if one.name == name]

    def latest(self, pattern: str) -> tuple[str, ...] | None:
        """The groups of the last match in a tool's result, quotations of the past left out."""
        found = re.search(pattern, self.latest_of(pattern))
        return None if found is None else found.groups()

    def latest_of(self, pattern: str) -> str:
        """The last result of a tool that matches, quotations of the past left out; else empty."""
        texts: list[str] = [row.text for row in self.rows if row.role == "tool"]
        matching = [
            text for text in texts if not text.startswith(QUOTED) and re.search(pattern, text)
        ]
        return matching[-1] if matching else ""

    def all(self, pattern: str) -> list[tuple[str, ...]]:
        """The groups of every match, in order."""
        return [match.groups() for match in re.finditer(pattern, self.text)]

    def seek(self, fact: str, kind: Kind, pattern: str, words: str) -> str | None:
        """The last text that the group of ``pattern`` matches; None if it is nowhere.

        Raises MissingFact where the agent looks for ``words`` first.
        """
        found = self.seek_all(fact, kind, pattern, words)
        return found[-1][0] if found else None

    def seek_all(self, fact: str, kind: Kind, pattern: str, words: str) -> list[tuple[str, ...]]:
        """All that ``pattern`` matches, as ``seek``."""
        found = self.all(pattern)
        if not found:
            self.look_up(words)
            self._read_in_full(words)
        asked = self._looked_for(words)
        where: Where = ("recall" if asked else "view") if found else "nowhere"
        self.sought.append(Sought(fact, kind, where))
        return found

    def look_up(self, words: str) -> None:
        """Recall ``words`` once in this turn, whatever is in view. Raises MissingFact."""
        if self.recalls and not self._looked_for(words):
            raise MissingFact(query=words)

    def _read_in_full(self, words: str) -> None:
        """Recall the message that an answer quotes first, page by page. Raises MissingFact."""
        wanted: dict[str, Any] = {"query": words}
        for row, answer in pairwise(self.rows[self._asked_at + 1 :]):
            if wanted not in [one.arguments for one in row.calls]:
                continue
            more = re.search(r"call again with start=(\d+)", answer.text)
            named = re.search(r'message="(\d+)"', answer.text)
            if named is None or ("message" in wanted and more is None):
                return
            wanted = {"message": int(named[1])}
            if more is not None:
                wanted["start"] = int(more[1])
        if "message" in wanted:
            raise MissingFact(**wanted)

    def _looked_for(self, words: str) -> bool:
        asked = self.calls(TOOL_NAME, of_request=True) if self.recalls else ()
        return any(one.get("query") == words for one in asked)


def read_row(message: Message) -> ReadRow:
    """A message of the chat dialect, as it is read."""
    content: Any = message.get("content") or ""
    if isinstance(content, list):
        content = "\n".join([str(one.get("text", "")) for one in content if isinstance(one, dict)])
    calls = tuple([_call(one["function"]) for one in message.get("tool_calls") or ()])
    return ReadRow(str(message.get("role")), str(content), calls)


def _call(function: Message) -> AgentCall:
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except ValueError:  # cut by a policy
        arguments = {}
    return AgentCall(str(function.get("name")), arguments if isinstance(arguments, dict) else {})


def message_of(action: Action, number: int) -> Message:
    """The agent's message; ``number`` names its call."""
    if isinstance(action, Say):
        return {"role": "assistant", "content": action.text}
    function = {"name": action.call.name, "arguments": json.dumps(action.call.arguments)}
    return {
        "role": "assistant",
        "content": action.text,
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }
