"""Messages that were queued while Claude Code's model was at work, and reached it in mid-turn.

``queue-operation`` lines follow the queue: ``enqueue`` puts a message in, ``dequeue`` takes one out
(a ``user`` line follows), ``popAll`` gives them back to the person's input, and ``remove`` takes
one out that the running turn absorbed. Up to 2.1.4x that is all, and only ``enqueue`` names a text:
what leaves is the first message of a person, or else the first notification, since a notification
waits for the end of the turn, and it may leave without a line. Later releases also write an
``attachment`` of type ``queued_command``, before or after the ``remove``, which then names its
text and a reason: ``absorbed_mid_turn``, or that the message went elsewhere. So an absorbed message
waits here until the next request begins, and is yielded once, in front of the answer to it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from eventctx.importers.formats.claude.rows import is_of_program
from eventctx.importers.source.lines import text_of_content
from eventctx.messages.speaker import is_of_harness

QUEUED_COMMAND: Final = "queued_command"

ABSORBED: Final = "absorbed_mid_turn"

_MOST: Final = 1_000
"""Messages that are remembered. Nobody queues as many, but a broken file may look as if."""


class QueuedMessage(msgspec.Struct):
    """A message that was absorbed; ``by_harness`` as in ``MessageItem``.

    ``removed`` and ``attached`` say which of the two lines have told of it.
    """

    line: int
    time: int | None
    content: str | list[Any]
    by_harness: bool = False
    uuid: object = None
    removed: bool = False
    attached: bool = False

    @property
    def message(self) -> dict[str, Any]:
        """The message as it is in the transcript."""
        return {"role": "user", "content": self.content}


class MessageQueue:
    """The queue from line to line, and what was absorbed since the last request began."""

    def __init__(self) -> None:
        self._queued: list[str] = []
        self._dequeued: str | None = None
        self._waiting: list[QueuedMessage] = []
        self._half_told: list[QueuedMessage] = []

    @property
    def first(self) -> QueuedMessage | None:
        """The first message that waits for the next request."""
        return self._waiting[0] if self._waiting else None

    def operation(self, line: int, time: int | None, row: dict[str, Any]) -> None:
        """Take a ``queue-operation`` line; an operation that is not known changes nothing."""
        operation, content, reason = row.get("operation"), row.get("content"), row.get("reason")
        text = content if isinstance(content, str) else None
        if operation == "enqueue":
            if text is not None and len(self._queued) < _MOST:
                self._queued.append(text)
        elif operation == "dequeue":
            self._dequeued = self._leave(text)
        elif operation == "popAll":
            rest = [one for one in self._queued if one != text]
            whole = text is None or len(rest) == len(self._queued)
            self._queued = [one for one in rest if is_of_harness(one)] if whole else rest
        elif operation == "remove":
            left = self._leave(text)
            # With a reason and no text, the attachment alone has the message.
            told = text if reason == ABSORBED else left if reason is None else None
            if told is not None and told.strip():
                uuid = row.get("commandUuid")
                self._absorb(QueuedMessage(line, time, told, uuid=uuid, removed=True))

    def attachment(self, line: int, time: int | None, attachment: dict[str, Any]) -> None:
        """Take a ``queued_command``; its time is that of the queueing."""
        prompt, uuid = attachment.get("prompt"), attachment.get("source_uuid")
        if isinstance(prompt, str | list) and prompt:
            harness = _by_harness(attachment)
            self._absorb(QueuedMessage(line, time, prompt, harness, uuid, attached=True))

    def said(self, message: dict[str, Any]) -> None:
        """Take a ``user`` line: a message that waits with the same words is this one."""
        words = text_of_content(message.get("content"))
        if not words:
            return
        self._waiting = [one for one in self._waiting if text_of_content(one.content) != words]
        if self._dequeued is None or self._dequeued.strip() != words:
            # Releases without a line for it take a notification out silently.
            known = next((one for one in self._queued if one.strip() == words), None)
            self._queued = [one for one in self._queued if one is not known]
        self._dequeued = None

    def taken(self) -> list[QueuedMessage]:
        """The messages that wait, now that a request begins; they wait no more."""
        taken, self._waiting = self._waiting, []
        half = [one for one in taken if one.removed != one.attached]
        self._half_told = [*self._half_told, *half][-_MOST:]
        return taken

    def begin_turn(self) -> None:
        """Forget what the last turn absorbed: no line about it is still to come."""
        self._half_told = []

    def _leave(self, text: str | None) -> str | None:
        """Take the message with this text, or else the first one, out; return its text."""
        people = (one for one in self._queued if not is_of_harness(one))
        first = next(people, self._queued[0] if self._queued else None)
        leaves = text if text in self._queued else first
        if leaves is not None:
            self._queued.remove(leaves)
        return leaves if text is None else text

    def _absorb(self, new: QueuedMessage) -> None:
        """Let a message wait, unless the other of its two lines has told of it already."""
        if any(_completes(one, new) for one in self._half_told):
            return
        known = next((one for one in self._waiting if _completes(one, new)), None)
        if known is None:
            self._waiting = [*self._waiting, new][:_MOST]
        elif new.attached:
            known.content, known.by_harness = new.content, new.by_harness
        else:
            known.time = new.time


def _completes(known: QueuedMessage, new: QueuedMessage) -> bool:
    """Whether ``new`` is the second line about a message; if so, marks it as told whole."""
    both = (known.removed and new.attached) or (known.attached and new.removed)
    if not both or (known.removed and known.attached):
        return False
    same = known.uuid == new.uuid if known.uuid and new.uuid else False
    if same or text_of_content(known.content) == text_of_content(new.content):
        known.removed = known.attached = True
        return True
    return False


def _by_harness(attachment: dict[str, Any]) -> bool:
    """Whether a ``queued_command`` is not a person's, by its mode, its origin or ``isMeta``."""
    notice = attachment.get("commandMode") == "task-notification"
    of_program = is_of_program(attachment.get("origin"))
    return notice or attachment.get("isMeta") is True or of_program
