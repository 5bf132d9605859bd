"""Lines that wait: for their session's name, for the line that they follow, for the next request.

The program writes its lines at once, not in turn, so the result of a quick tool may come before its
call. Such a line waits here for the line that it follows, for a few lines at most; a parent that
was never written changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.importers.formats.claude.rows import ClaudeRow, is_of_program
from eventctx.importers.source.lines import text_of_content
from eventctx.importers.source.values import BROKEN
from eventctx.messages.speaker import is_of_harness

WINDOW: Final = 16
"""Lines for which one waits. In recorded files it is one or two."""


class _Block(msgspec.Struct):
    type: str = ""
    id: str | None = None
    tool_use_id: str | None = None


class _Message(msgspec.Struct):
    content: list[_Block]


_decode_message: Final = msgspec.json.Decoder(_Message).decode


class WaitingRow(NamedTuple):
    """A line and its number; a line that waited has that of the line which it follows."""

    line: int
    data: bytes
    row: ClaudeRow


_UUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


_OF_ANOTHER: Final = 4
"""Lines with another session's id after which it is the file's name that is another's."""


class OwnSession:
    """The session that a file is of, where its first lines name the one that it comes from.

    Claude Code names a file after its session. Where it goes on in a new file, as with a plan whose
    context was cleared, the first lines may still bear the id of the old one.
    """

    def __init__(self, file: str) -> None:
        named = _UUID.search(file)
        self.own: str | None = None
        self._hoped = None if named is None else named[0]
        self._held: list[WaitingRow] = []

    @property
    def first(self) -> WaitingRow | None:
        """The row that waits."""
        return self._held[0] if self._held else None

    def take(self, new: WaitingRow) -> list[WaitingRow]:
        """The rows whose session is known with ``new``."""
        session = new.row.sessionId
        if self._hoped is None or new.row.isSidechain or (session is None and not self._held):
            return [new]
        self._held.append(new)
        if session == self._hoped:
            self.own = session
        return self.rest() if self.own or len(self._held) >= _OF_ANOTHER else []

    def rest(self) -> list[WaitingRow]:
        """The rows that still wait; none waits any more."""
        rows, self._held, self._hoped = self._held, [], None
        return rows


class _Waits(NamedTuple):
    """The end of the waiting: a line of this name, or one with a call of these."""

    uuid: object
    calls: frozenset[str]


class LineOrder:
    """Rows in the order of the conversation. ``knows`` tells which names were taken before."""

    def __init__(self, knows: Callable[[object], bool]) -> None:
        self._knows = knows
        self._calls: set[int] = set()
        self._answers = False
        self._held: list[WaitingRow] = []
        self._waits = _Waits(None, frozenset())

    @property
    def first(self) -> WaitingRow | None:
        """The row that waits."""
        return self._held[0] if self._held else None

    def take(self, new: WaitingRow) -> list[WaitingRow]:
        """The rows that ``new`` completes, each to be taken before the next is asked for."""
        if not self._held:
            waits = self._waits_of(new.row)
            if waits is None:
                return [new]
            self._held, self._waits = [new], waits
            return []
        self._held.append(new)
        calls, _ = _calls_and_results(new.row)
        if self._waits.calls & set(calls) or _is(new.row.uuid, self._waits.uuid):
            first = self._held[0]._replace(line=new.line)
            return self._release([*self._held[1:], first])
        return self._release(self._held) if len(self._held) > WINDOW else []

    def rest(self) -> list[WaitingRow]:
        """The rows that still wait, in file order; none waits any more."""
        return self._release(self._held)

    def _release(self, rows: list[WaitingRow]) -> list[WaitingRow]:
        self._held = []
        for one in rows:
            self._note(one.row)
        return rows

    def _note(self, row: ClaudeRow) -> None:
        calls, _ = _calls_and_results(row)
        self._calls.update(map(hash, calls))
        self._answers = self._answers or row.type == "assistant"

    def _waits_of(self, row: ClaudeRow) -> _Waits | None:
        """The lines that a row waits for; None for one that follows what came before."""
        if row.type not in ("user", "assistant") or self._knows(row.uuid):
            return None
        calls, results = _calls_and_results(row)
        if row.type == "assistant":
            parent = row.parentUuid
            if self._answers and isinstance(parent, str) and not self._knows(parent):
                return _Waits(parent, frozenset())
        elif self._answers:
            missing = frozenset(one for one in results if hash(one) not in self._calls)
            if missing:
                return _Waits(None, missing)
        self._calls.update(map(hash, calls))
        self._answers = self._answers or row.type == "assistant"
        return None


def _is(uuid: object, wanted: object) -> bool:
    return isinstance(wanted, str) and uuid == wanted


def _calls_and_results(row: ClaudeRow) -> tuple[list[str], list[str]]:
    """The ids of the calls in a row's message, and of the calls that it answers."""
    data = bytes(row.message)
    if b'"tool_' not in data:
        return [], []
    try:
        content = _decode_message(data).content
    except BROKEN:
        return [], []
    calls = [one.id for one in content if one.type == "tool_use" and one.id]
    results = [one.tool_use_id for one in content if one.type == "tool_result" and one.tool_use_id]
    return calls, results


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
    """Messages that were queued while the model was at work, and reached it in mid-turn.

    ``queue-operation`` lines follow the queue: ``enqueue`` puts a message in, ``dequeue`` takes one
    out (a ``user`` line follows), ``popAll`` gives them back to the person's input, and ``remove``
    takes one out that the running turn absorbed. Up to 2.1.4x that is all, and only ``enqueue``
    names a text: the first message of a person leaves, or else the first notification, since a
    notification waits for the end of the turn, and it may leave without a line. Later releases also
    write an ``attachment`` of type ``queued_command``, before or after the ``remove``, which then
    names its text and a reason: ``absorbed_mid_turn``, or that the message went elsewhere. So an
    absorbed message waits here until the next request begins, and is yielded once, before the
    answer to it.
    """

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

    def note_spoken(self, message: dict[str, Any]) -> None:
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

    def take(self) -> list[QueuedMessage]:
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
