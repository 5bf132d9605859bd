"""Plays a task: an agent, its tools, and whatever makes the view of each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from eventctx.comparison.played import PlayedRequest
from eventctx.engine import open_engine
from eventctx.messages.recall_text import TOOL_NAME
from eventctx.search.tool import MIN_CHARACTERS
from eventctx.testing.tasks.reading import (
    Action,
    AgentCall,
    AgentView,
    Do,
    MissingFact,
    Sought,
    message_of,
)
from eventctx.testing.tasks.work import Family, Work

SYSTEM: Final = "You work for a person, with tools. What you find goes on from text to text."
RECALL: Final = (
    "Earlier messages may be out of sight; the tool recall_messages looks them up. What may have "
    "changed meanwhile is looked up before it is relied on."
)

ROOM: Final = 3
"""A run may take so many times the steps of the run that sees everything."""

SESSION: Final = "task"


class ViewSource(Protocol):
    """What an agent's messages go into, and what makes the view of each request of them."""

    def add(self, message: dict[str, Any]) -> None:
        """Take one more message."""

    def request(self) -> PlayedRequest:
        """Prepare the next request, and say how large its view is."""

    def rows(self) -> Sequence[dict[str, Any]]:
        """The messages of the prepared request, in the chat dialect."""

    def last(self) -> dict[str, Any]:
        """The last of them that was added and not made by a program."""


class TaskRun(NamedTuple):
    """A task that was played: whether it succeeded, and how the agent came by its facts."""

    succeeded: bool
    recalls: int
    sought: tuple[Sought, ...]
    messages: tuple[dict[str, Any], ...]
    requests: tuple[PlayedRequest, ...]


class RecallLog:
    """The messages of one run in a store of their own, for the recall tool alone."""

    def __init__(self, characters: int) -> None:
        self._characters = characters
        self._engine: Any = None
        self._context: Any = None
        self._tool: Any = None
        self._added = 0

    async def recall(self, messages: Sequence[dict[str, Any]], arguments: Mapping[str, Any]) -> str:
        """The tool's answer, after all messages until now are in the log."""
        if self._tool is None:
            self._engine = await open_engine(":memory:")
            self._context = await self._engine.session(SESSION)
            self._tool = self._context.recall_tool(max_characters=self._characters)
        for message in messages[self._added :]:
            await self._context.add_message(message)
        self._added = len(messages)
        return str(await self._tool(dict(arguments)))

    async def close(self) -> None:
        """Let the store go."""
        if self._engine is not None:
            await self._engine.close()


async def play(
    family: Family,
    work: Work,
    source: ViewSource,
    *,
    most_steps: int,
    recall_characters: int | None = None,
) -> TaskRun:
    """Play a task to its end.

    ``recall_characters`` is the size of the recall tool's answers; without it the agent has no such
    tool. Raises what the source raises.
    """
    log = None if recall_characters is None else RecallLog(max(MIN_CHARACTERS, recall_characters))
    run = _Run(family, work, source, log)
    try:
        return await run.play(most_steps)
    finally:
        if log is not None:
            await log.close()


class _Run:
    def __init__(
        self, family: Family, work: Work, source: ViewSource, log: RecallLog | None
    ) -> None:
        self._family = family
        self._work = work
        self._source = source
        self._log = log
        self._messages: list[dict[str, Any]] = []
        self._calls: list[AgentCall] = []
        self._sought: list[Sought] = []
        self._requests: list[PlayedRequest] = []
        self._recalls = 0

    def _add(self, message: dict[str, Any]) -> None:
        self._messages.append(message)
        self._source.add(message)

    async def play(self, most_steps: int) -> TaskRun:
        system = SYSTEM if self._log is None else f"{SYSTEM} {RECALL}"
        self._add({"role": "system", "content": system})
        for person in self._work.persons:
            self._add({"role": "user", "content": person})
            while (step := len(self._requests)) < most_steps:
                action = self._decide()
                self._add(message_of(action, step))
                if not isinstance(action, Do):
                    break
                content = await self._result(action.call)
                self._add({"role": "tool", "tool_call_id": f"call_{step}", "content": content})
        return TaskRun(
            self._work.succeeded(self._calls),
            self._recalls,
            tuple(dict.fromkeys(self._sought)),
            tuple(self._messages),
            tuple(self._requests),
        )

    def _decide(self) -> Action:
        self._requests.append(self._source.request())
        view = AgentView(self._source.rows, self._source.last(), recalls=self._log is not None)
        try:
            action = self._family.decide(view)
        except MissingFact as unknown:
            action = Do(AgentCall(TOOL_NAME, unknown.arguments))
        self._sought += view.sought
        return action

    async def _result(self, call: AgentCall) -> str:
        if call.name == TOOL_NAME and self._log is not None:
            self._recalls += 1
            return await self._log.recall(self._messages[:-1], call.arguments)
        result = self._work.result(call, self._calls)
        self._calls.append(call)
        return result
