"""Plain message lists: OpenAI chat, Anthropic, Responses items or Amplifier rows.

The list is a JSON array, a JSON object with ``messages`` (or ``input``, the Responses API's name),
or JSONL with a message per line. In an object, ``system`` or ``instructions`` is the first message,
and the log of one request may hold its answer under ``response`` (a completion, an Anthropic
message, or a list of items).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from eventctx.errors import MalformedTranscript
from eventctx.importers.formats.foreign import foreign
from eventctx.importers.formats.provider_answers import (
    answer_body,
    answers,
    finish_of,
)
from eventctx.importers.source.document import document_or_rows, envelope, first_record, stem
from eventctx.importers.source.items import (
    CallEnded,
    Ended,
    FileLine,
    Item,
    MessageItem,
    ModelCall,
    Session,
    TurnBegan,
    Waiting,
    never,
)
from eventctx.importers.source.lines import (
    count,
    facts_or_none,
    first_line,
    item_facts_or_none,
    nanoseconds,
    not_understood,
    object_or_empty,
    read_rows,
    text_or_none,
)
from eventctx.importers.source.values import decode, encode, read_value
from eventctx.log.usage import read_provider_usage
from eventctx.messages.facts import Facts
from eventctx.messages.tool_results import by_person
from eventctx.messages.tool_rounds import joins

_LISTS: Final = ("messages", "input")
_PROMPTS: Final = ("system", "instructions")
_CONTENT: Final = ("content", "tool_calls", "function_call", "refusal", "audio")
"""A message with a role has one of these; without any, it is a line of another program."""

_OF_ITEMS: Final = ("call_id", "summary", "encrypted_content", "action", "output", "outputs")
_OF_HOSTED: Final = ("queries", "results", "server_label", "code", "container_id", "result")
"""An item has one of these; many programs write lines with the type of one."""

_LOOKED_AT: Final = 50
_TIMES: Final = ("timestamp", "created_at", "time", "ts")


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one list. JSONL is streamed; a document is read whole."""
    first, lines = first_line(lines)
    if first is None:
        raise MalformedTranscript(
            f"{name}: expected messages, found nothing; is it the right file?"
        )
    document = None
    if not _is_jsonl(first.data):
        document, lines = document_or_rows(lines, name, is_message)
    if document is None:
        yield from parse_rows(lines, stem(name))
    else:
        value, repaired = document
        rows = _rows(value, name)
        times = (time for row in rows if (time := _time(row)) is not None)
        yield Session(0, next(times, _time(value)), stem(name))
        yield from repaired
        yield from _Talk().document(value, rows)


def parse_rows(lines: Iterable[FileLine], session: str) -> Iterator[Item]:
    """The items of JSONL with a message per line, as the session of this name."""
    first, lines = first_line(lines)
    if first is None or (first_record(first) is None and not first.terminated):
        yield Waiting(1, "there is no whole message yet")
        return
    yield Session(0, _time(first_record(first)), session)
    yield from read_rows(lines, decode, _Talk().line)


def _time(row: object) -> int | None:
    """The time when a row was written; Amplifier has it in ``metadata``."""
    if not isinstance(row, dict):
        return None
    values = [row.get(key) for key in _TIMES]
    values.append(object_or_empty(row.get("metadata")).get("timestamp"))
    return next((time for value in values if (time := nanoseconds(value)) is not None), None)


def _rows(value: Any, name: str) -> list[Any]:
    rows = value
    if isinstance(value, dict):
        key = next((key for key in _LISTS if isinstance(value.get(key), list)), None)
        rows = value[key] if key else None
    if not isinstance(rows, list):
        raise MalformedTranscript(
            f"{name}: expected a list of messages or an object with one under 'messages', "
            f"found {type(value).__name__}; name another format with --format"
        )
    return rows


def _is_jsonl(data: bytes) -> bool:
    try:
        value, _ = read_value(data)
    except ValueError:
        # The first line of a document of many lines, or two messages on one line.
        return data.lstrip().startswith(b'{"') and b"}{" in data
    return isinstance(value, dict) and not any(key in value for key in _LISTS)


def is_message(value: object) -> bool:
    """Whether a value is a message or an item in a known dialect."""
    return facts_or_none(value) is not None


def is_plain(value: object) -> bool:
    """Whether a value is a message of a known dialect, by its role or type and by its content."""
    if not isinstance(value, dict) or not is_message(value) or foreign(value):
        return False
    keys = _CONTENT if "role" in value else (*_OF_ITEMS, *_OF_HOSTED)
    return any(key in value for key in keys)


def holds_plain(rows: list[Any]) -> bool:
    """Whether one of the first rows is a message."""
    return any(map(is_plain, rows[:_LOOKED_AT]))


def is_document(value: object) -> bool:
    """Whether a value is a list of messages, or an object with one."""
    if isinstance(value, dict):
        messages, rows = value.get("messages"), value.get("input")
        if isinstance(messages, list):
            return not messages or holds_plain(messages)
        return isinstance(rows, list) and any(map(is_plain, rows))
    return isinstance(value, list) and holds_plain(value)


def _is_of_responses(facts: Facts | None) -> bool:
    return facts is not None and facts.dialect == "responses"


class _Talk:
    """The state along a list: the facts of the previous row, and whether a call is open.

    ``items`` is true once the list is known to hold items of OpenAI's Responses API: from there on
    one of an unknown type is an item, too, and not another program's line.
    """

    def __init__(self) -> None:
        self.previous: Facts | None = None
        self.calling = False
        self.items = False

    def document(self, value: Any, rows: list[Any]) -> Iterator[Item]:
        """The items of a whole document."""
        if isinstance(value, dict):
            for key in _PROMPTS:
                if value.get(key):
                    yield MessageItem(0, None, {"role": "system", "content": value[key]})
        self.items = any(_is_of_responses(facts_or_none(row)) for row in rows)
        for number, row in enumerate(rows, 1):
            yield from self.row(number, row, encode(row))
        yield from self._logged(len(rows) + 1, object_or_empty(value))
        if isinstance(value, dict) and len(value) > 1:
            yield envelope(value, *_LISTS)

    def line(self, number: int, data: bytes, row: Any) -> Iterator[Item]:
        """The items of one line of JSONL."""
        return self.row(number, row, data)

    def row(self, number: int, row: Any, data: bytes) -> Iterator[Item]:
        """The items of one message."""
        facts = item_facts_or_none(row) if self.items else facts_or_none(row)
        self.items = self.items or _is_of_responses(facts)
        if facts is None:
            kind = text_or_none(object_or_empty(row).get("type"))
            problem = "neither a role nor an item type that is known"
            yield from not_understood(number, "untyped" if kind is None else kind, data, problem)
            return
        time = _time(row)
        if facts.kind == "assistant":
            if self.previous is None or not joins(self.previous, facts):
                yield from self._close(number)
                self.calling = True
                yield _call(number, row)
        else:
            yield from self._close(number)
            if facts.role == "user" and by_person(row, facts, self.previous):
                yield TurnBegan(number, time)
        self.previous = facts
        yield MessageItem(number, time, row, facts=facts)
        if facts.dialect != "responses" and self.calling:
            self.calling = False
            yield CallEnded(number, time)

    def _logged(self, number: int, log: dict[str, Any]) -> Iterator[Item]:
        """The answer to these messages, if the document is the log of one request."""
        response = answer_body(log.get("response"))
        found = answers(response)
        if not found:
            return
        yield from self._close(number)
        yield ModelCall(
            number,
            None,
            model=text_or_none(response.get("model")),
            usage=read_provider_usage(response.get("usage")),
            finish_reason=finish_of(response),
            context_window=count(log.get("context_window")) or None,
            response_id=text_or_none(response.get("id")),
        )
        time = nanoseconds(response.get("created", response.get("created_at")))
        for message in found:
            yield MessageItem(number, time, message)
        yield CallEnded(number, time)

    def _close(self, number: int) -> Iterator[Item]:
        if self.calling:
            self.calling = False
            yield CallEnded(number, None)


def _call(number: int, row: dict[str, Any]) -> ModelCall:
    return ModelCall(
        number,
        None,
        model=text_or_none(row.get("model")),
        usage=read_provider_usage(row.get("usage")),
        finish_reason=text_or_none(row.get("stop_reason", row.get("finish_reason"))),
    )
