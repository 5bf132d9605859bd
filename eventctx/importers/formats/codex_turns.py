"""The turns of a Codex rollout, which ``thread_rolled_back`` counts from the end.

A turn is a task with a person's message in it; further messages of the person belong to it. A task
without one (``/compact``) goes with the turn before it. What stands before the person's first
message is no part of any turn, and stays. In rollouts without ``task_started`` every message of a
person begins a turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from eventctx.importers.source.items import (
    CompactionItem,
    Item,
    MessageItem,
    TurnBegan,
    Undone,
)


class _Point(NamedTuple):
    """Where a turn begins: how many messages and compactions the file has before it."""

    messages: int
    compactions: int


class Turns:
    """The points where the turns began that are in the conversation now."""

    def __init__(self) -> None:
        self._now = _Point(0, 0)
        self._task: _Point | None = None
        self._in_task = False
        self._began: list[_Point] = []

    def see(self, item: Item) -> Item:
        """Count an item of the file, which is returned."""
        if isinstance(item, MessageItem):
            self._now = self._now._replace(messages=self._now.messages + 1)
        elif isinstance(item, CompactionItem):
            self._now = self._now._replace(compactions=self._now.compactions + 1)
        elif isinstance(item, TurnBegan):
            self._turn_began()
        return item

    def _turn_began(self) -> None:
        if self._in_task and self._task is None:
            return  # a person's further message
        start = self._task or self._now
        if not self._began:
            start = start._replace(messages=self._now.messages)
        self._began.append(start)
        self._task = None

    def begin(self) -> None:
        """A task begins at the next item."""
        self._task, self._in_task = self._now, True

    def end(self) -> None:
        """The task is over."""
        self._task, self._in_task = None, False

    def take_back(self, line: int, time: int | None, number: int) -> Iterator[Undone]:
        """The item that takes the last turns out of the conversation, if there are any."""
        self.end()
        number = min(number, len(self._began))
        if number == 0:
            return
        start = self._began[-number]
        del self._began[-number:]
        yield Undone(
            line,
            time,
            frozenset(range(start.messages, self._now.messages)),
            frozenset(range(start.compactions, self._now.compactions)),
        )
