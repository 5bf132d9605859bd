"""Events of a Codex rollout: messages that only they hold, and the turns that they take back.

``user_message`` and ``agent_message`` are written for the user interface. As a rule a
``response_item`` says the same, before the event or after it; some rollouts have the events
alone. So an event waits until a line shows that no item follows, and only then is a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from eventctx.importers.source.items import (
    CompactionItem,
    Item,
    MessageItem,
    TurnBegan,
    Undone,
)
from eventctx.importers.source.lines import object_or_empty, text_of_content, text_or_none

SPOKEN: Final[dict[str, Literal["user", "assistant"]]] = {
    "user_message": "user",
    "agent_message": "assistant",
}
"""The events that repeat a message, and the role of its item."""

_MOST: Final = 100
_SAME_BEGINNING: Final = 40
"""Characters. The event leaves out what the user interface does not show, such as citations."""


class EventMessage(NamedTuple):
    """A message as an event has it."""

    line: int
    time: int | None
    role: Literal["user", "assistant"]
    text: str

    @property
    def message(self) -> dict[str, Any]:
        """The item that Codex makes of it."""
        kind = "input_text" if self.role == "user" else "output_text"
        content = [{"type": kind, "text": self.text}]
        return {"type": "message", "role": self.role, "content": content}


class EventMessages:
    """The events without their item so far, and the items without their event."""

    def __init__(self) -> None:
        self._waiting: list[EventMessage] = []
        self._items: list[tuple[str, str]] = []

    @property
    def first(self) -> EventMessage | None:
        """The first event that waits for its item."""
        return self._waiting[0] if self._waiting else None

    @property
    def answered(self) -> bool:
        """Whether a message of the model waits. The count of its call comes after its items."""
        return any(one.role == "assistant" for one in self._waiting)

    def event(self, line: int, time: int | None, kind: str, payload: Any) -> None:
        """Take a ``user_message`` or ``agent_message``, unless an item said it already."""
        text = text_or_none(object_or_empty(payload).get("message"))
        if text is None or not text.strip():
            return
        new = EventMessage(line, time, SPOKEN[kind], text)
        for said in self._items:
            if _repeats(new, *said):
                self._items.remove(said)
                return
        if len(self._waiting) < _MOST:
            self._waiting.append(new)

    def item(self, payload: dict[str, Any]) -> None:
        """Take a message item of a person or the model: an event that it repeats waits no more."""
        role, text = payload.get("role"), text_of_content(payload.get("content"))
        if not isinstance(role, str) or not text:
            return
        for waiting in self._waiting:
            if _repeats(waiting, role, text):
                self._waiting.remove(waiting)
                return
        self._items = [*self._items, (role, text)][-_MOST:]

    def take(self) -> list[EventMessage]:
        """The messages that no item holds, now that none can follow."""
        taken, self._waiting = self._waiting, []
        return taken

    def end_turn(self) -> None:
        """The turn is over; no event about its items is still to come."""
        self._items = []


def _repeats(event: EventMessage, role: str, text: str) -> bool:
    """Whether an event repeats the item with this role and text.

    A person's next item is the one of a person's event, whatever was put around the words.
    """
    if role != event.role:
        return False
    words, start = event.text.strip(), _SAME_BEGINNING
    return role == "user" or words in text or words[:start] == text[:start]


class _Point(NamedTuple):
    """The beginning of a turn: the number of messages and compactions before it in the file."""

    messages: int
    compactions: int


class Turns:
    """The points where the turns began that are in the conversation now.

    ``thread_rolled_back`` counts turns from the end. A turn is a task with a person's message in
    it; further messages of the person belong to it. A task without one (``/compact``) goes with the
    turn before it. Messages before the person's first one are in no turn, and stay. In rollouts
    without ``task_started`` every message of a person begins a turn.
    """

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
