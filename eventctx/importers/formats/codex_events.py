"""Messages of a Codex rollout that only its events hold.

``user_message`` and ``agent_message`` are written for the user interface. As a rule a
``response_item`` says the same, in front of the event or behind it; some rollouts have the events
alone. So an event waits until a line shows that no item follows, and only then is a message.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

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
        """Whether a message of the model waits. The count of its call comes behind its items."""
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

    def taken(self) -> list[EventMessage]:
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
