"""OpenHands' events (version 1 of its SDK; each names its ``kind``), in three wrappings.

The wrappings are a folder with a file per event, a JSON list (also as ``history`` of an object),
and JSONL. The part of an event that is not in its message is kept, too; an event that becomes
no message is kept whole. The calls of one answer are consecutive events with one
``llm_response_id``. They are written one by one, so the last answer waits for the next event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final

from eventctx.errors import MalformedTranscript
from eventctx.importers.formats import openhands_messages as build
from eventctx.importers.formats.openhands_messages import BuiltMessage, summary_of
from eventctx.importers.source.document import document_or_rows, envelope, first_record, stem
from eventctx.importers.source.items import (
    CallEnded,
    CompactionItem,
    Ended,
    FileLine,
    Item,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    TurnEnded,
    Waiting,
    Warned,
    never,
)
from eventctx.importers.source.lines import (
    first_line,
    nanoseconds,
    not_understood,
    parse_rows,
    read_rows,
    session_first,
    text_or_none,
    without,
)
from eventctx.importers.source.naming import RecordNames, words_in
from eventctx.importers.source.values import decode, encode
from eventctx.messages.facts_reader import read_facts

_LOOKED_AT: Final = 50

_KNOWN: Final = frozenset(
    (
        "CondensationRequest",
        "ConversationErrorEvent",
        "ConversationStateUpdateEvent",
        "HookExecutionEvent",
        "InterruptEvent",
        "LLMCompletionLogEvent",
        "PauseEvent",
        "StreamingDeltaEvent",
        "TokenEvent",
    )
)
_MESSAGES: Final[dict[str, Callable[[dict[str, Any]], BuiltMessage | None]]] = {
    "SystemPromptEvent": build.system_prompt,
    "MessageEvent": build.spoken,
    "ActionEvent": build.action,
    "ObservationEvent": build.observation,
    "AgentErrorEvent": build.failure,
    "UserRejectObservation": build.failure,
}


def is_event(value: object) -> bool:
    """Whether a value is an event of the SDK."""
    return isinstance(value, dict) and all(key in value for key in ("kind", "source", "timestamp"))


def is_document(value: object) -> bool:
    """Whether a value is a list of events, as it is or under ``history``; or one event."""
    rows = value.get("history") if isinstance(value, dict) else value
    if is_event(value):
        return True
    return isinstance(rows, list) and any(map(is_event, rows[:_LOOKED_AT]))


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one file: JSONL, a list, or an object with the list under ``history``."""
    first, lines = first_line(lines)
    if first is None:
        raise MalformedTranscript(f"{name}: expected events, found nothing; is it the right file?")
    events = _Conversation(name)
    document = None
    if not is_event(first_record(first)):
        document, lines = document_or_rows(lines, name, is_event)
    if document is None:
        yield from parse_rows(lines, decode, events.row, events.end(ended))
        return
    value, repaired = document
    rows_of = [value] if is_event(value) else _history(value, name)
    found = (item for n, row in enumerate(rows_of, 1) for item in events.row(n, encode(row), row))
    rest = [envelope(value, "history")] if isinstance(value, dict) and not is_event(value) else []
    yield from session_first(chain(found, events.end(ended), repaired, rest))


def parse_folder(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of a folder's events, up to a missing one, which may still come."""
    events = _Conversation(name)
    return session_first(chain(_in_order(lines, events, ended), events.end(ended)))


def _in_order(lines: Iterable[FileLine], events: _Conversation, ended: Ended) -> Iterator[Item]:
    expected = 1
    for line in lines:
        if line.number > expected:
            if not ended():
                text = f"event {expected - 1} is missing; what follows waits for it"
                yield Waiting(expected, f"{text}, or for --complete")
                return
            last = f" to {line.number - 2}" if line.number > expected + 1 else ""
            yield Warned(line.number, f"missing before it: event {expected - 1}{last}")
        expected = line.number + 1
        yield from read_rows((line,), decode, events.row)


def _history(value: Any, name: str) -> list[Any]:
    rows = value.get("history") if isinstance(value, dict) else value
    if not isinstance(rows, list):
        raise MalformedTranscript(
            f"{name}: expected a list of events or an object with one under 'history', found "
            f"{type(value).__name__}; name another format with --format"
        )
    return rows


class _Answer:
    """An answer of the model with calls; more calls may follow."""

    def __init__(self, line: int, time: int | None, response: object, message: dict[str, Any]):
        self.line = line
        self.time = time
        self.response = response
        self.message = message


class _Conversation:
    def __init__(self, name: str) -> None:
        self.name = stem(name)
        self.begun = False
        self.places = 0
        self.view = View()
        self.names = RecordNames()
        self.open: _Answer | None = None
        self.answered: object = None
        self.trigger: str | None = None

    def row(self, line: int, data: bytes, row: Any) -> Iterator[Item]:
        """The items of one event."""
        event = row if isinstance(row, dict) else {}
        time = nanoseconds(event.get("timestamp"))
        if not self.begun:
            self.begun = True
            yield Session(line, time, self.name)
        kind = event.get("kind")
        event_id = event.get("id")
        if not isinstance(kind, str):
            yield from not_understood(line, "untyped", data, "an event without a kind")
            return
        if isinstance(event_id, str):
            event_id = self.names.name_of(event_id, _words_in(event))
        if isinstance(event_id, str) and self.view.known(event_id):
            yield Raw(line, f"{kind}.duplicate", data)
            yield Warned(line, "an event's id that another event has already; left as it is")
            return
        shown = event_id if isinstance(event_id, str) else f"line {line}"
        self.view.add(shown)
        if kind == "Condensation":
            yield from self._condensation(line, time, data, event)
        elif kind in _MESSAGES:
            yield from self._message(line, time, data, event, shown)
        else:
            yield Raw(line, kind, data, kind in _KNOWN)
            yield from self._other(line, time, kind, event)

    def _other(
        self, line: int, time: int | None, kind: str, event: dict[str, Any]
    ) -> Iterator[Item]:
        if kind == "CondensationRequest":
            self.trigger = text_or_none(event.get("reason")) or "request"
        elif kind == "ConversationErrorEvent":
            yield from self._close()
            yield TurnEnded(line, time, "error", text_or_none(event.get("code")) or "error")

    def _condensation(
        self, line: int, time: int | None, data: bytes, event: dict[str, Any]
    ) -> Iterator[Item]:
        yield from self._close()
        compaction = self.view.condense(line, time, event, self.trigger, self.places)
        if compaction is None:
            problem = "a condensation that does not say which events are forgotten"
            yield from not_understood(line, "Condensation", data, problem)
            return
        self.trigger = None
        if compaction.messages:
            yield Raw(line, "Condensation.envelope", encode(without(event, "summary")))
        else:
            yield Raw(line, "Condensation", data)
        yield compaction

    def _message(
        self, line: int, time: int | None, data: bytes, event: dict[str, Any], shown: str
    ) -> Iterator[Item]:
        kind = event["kind"]
        found = _MESSAGES[kind](event)
        if found is None:
            problem = f"{kind} without what its message is made of"
            yield from not_understood(line, kind, data, problem)
            return
        rest = {**without(event, *found.used), **found.rest}
        yield Raw(line, f"{kind}.envelope", encode(rest))
        if kind == "ActionEvent":
            yield from self._action(line, time, event.get("llm_response_id"), found.message)
            self.view.show(shown, self.places)
            return
        yield from self._close()
        self.view.show(shown, self.places)
        self.places += 1
        if found.message["role"] == "assistant":
            yield ModelCall(line, None, response_id=text_or_none(event.get("llm_response_id")))
            yield MessageItem(line, time, found.message)
            yield CallEnded(line, time)
            return
        person = event.get("source") == "user" and found.message["role"] == "user"
        if person and read_facts(found.message).human:
            yield TurnBegan(line, time)
        spoken = found.message["role"] == "user" and not person
        yield MessageItem(line, time, found.message, found.failed, by_harness=spoken)

    # -- answers with calls ----------------------------------------------------------------------

    def _action(
        self, line: int, time: int | None, response: object, message: dict[str, Any]
    ) -> Iterator[Item]:
        if self.open is not None and response is not None and self.open.response == response:
            self.open.message = build.join(self.open.message, message)
            self.open.time = time if self.open.time is None else max(self.open.time, time or 0)
            return
        yield from self._close()
        self.open = _Answer(line, time, response, message)

    def _close(self) -> Iterator[Item]:
        answer, self.open = self.open, None
        if answer is None:
            return
        self.places += 1
        if answer.response is not None and answer.response == self.answered:
            # More calls of an answer that looked complete: kept, but no second model call.
            yield MessageItem(answer.line, answer.time, answer.message)
            return
        self.answered = answer.response
        yield ModelCall(answer.line, None, response_id=text_or_none(answer.response))
        yield MessageItem(answer.line, answer.time, answer.message)
        yield CallEnded(answer.line, answer.time)

    def end(self, ended: Ended) -> Iterator[Item]:
        """The last answer, if no further call can belong to it."""
        if not self.begun:
            yield Waiting(1, "there is no event yet")
        if self.open is None:
            return
        if ended():
            yield from self._close()
        else:
            yield Waiting(self.open.line, "the last answer may still get more calls")


def _words_in(event: dict[str, Any]) -> str:
    """A mark of a person's words; empty for all other events."""
    found = build.spoken(event) if event.get("kind") == "MessageEvent" else None
    if found is None or event.get("source") != "user":
        return ""
    return words_in(found.message.get("content"))


class View:
    """Ids of the events that the model is shown, in order, and how a condensation changes them.

    A condensation names events: ``forgotten_event_ids``, and an offset at which a summary is
    inserted into the list of the remaining events. Here these become places of messages. Several
    events can be one message, which is forgotten when all of them are. A summary that no message
    follows is put before the next message to come.
    """

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}
        self._summaries: dict[str, int] = {}
        self._known: set[str] = set()
        self._condensations = 0

    def known(self, event_id: str) -> bool:
        """Whether there was an event of this id."""
        return event_id in self._known

    def add(self, event_id: str) -> None:
        """Add an event that may or may not be shown to the model."""
        self._known.add(event_id)

    def show(self, event_id: str, place: int) -> None:
        """Note that an event became the message in this place, or a part of it."""
        self._shown[event_id] = place

    def condense(
        self,
        line: int,
        time: int | None,
        event: dict[str, Any],
        trigger: str | None,
        next_place: int,
    ) -> CompactionItem | None:
        """The compaction of a condensation; None if it does not name the events that it forgets.

        ``next_place`` is that of the next message.
        """
        ids = event.get("forgotten_event_ids")
        if not isinstance(ids, list):
            return None
        forgotten = {one for one in ids if isinstance(one, str)}
        if forgotten - self._known:
            # Older releases gave summaries a new id on every read: an unknown id is a summary.
            forgotten |= self._summaries.keys()
        left = {one: place for one, place in self._shown.items() if one not in forgotten}
        standing = [number for one, number in self._summaries.items() if one in left]
        messages = {place for one, place in self._shown.items() if one not in self._summaries}
        stay = {place for one, place in left.items() if one not in self._summaries}
        summary, offset = text_or_none(event.get("summary")), event.get("summary_offset")
        before: int | None = None
        summaries: tuple[dict[str, Any], ...] = ()
        if summary is not None and isinstance(offset, int) and offset >= 0:
            behind = list(left)[offset:]
            places = (left[one] for one in behind if one not in self._summaries)
            before = next(places, next_place)
            summaries = (summary_of(summary),)
            summary_id = f"{event.get('id')}-summary"
            left = _with(left, offset, summary_id)
            self._summaries[summary_id] = self._condensations
            self._known.add(summary_id)
        self._shown = left
        self._condensations += 1
        return CompactionItem(
            line,
            time,
            trigger,
            summaries,
            forgotten=frozenset(messages - stay),
            before=before,
            standing=tuple(standing),
        )


def _with(shown: dict[str, int], offset: int, summary_id: str) -> dict[str, int]:
    entries = list(shown.items())
    entries.insert(min(offset, len(entries)), (summary_id, -1))
    return dict(entries)
