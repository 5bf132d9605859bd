"""Qwen Code's chats: a tree of records (``uuid`` and ``parentUuid``) with Google's contents.

A record whose parent is not the one before it goes back to that parent: what came after it was
taken back. A compression holds the whole history that the program goes on with
(``history.py``). A subagent's file holds its text and each of its calls in records of their
own, which are one answer up to the next result or round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from eventctx.importers.formats.google.contents import GoogleContents, is_results
from eventctx.importers.formats.google.history import History, InPlace
from eventctx.importers.source.document import stem
from eventctx.importers.source.items import (
    CallEnded,
    Ended,
    FileLine,
    Item,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    Waiting,
    Warned,
    never,
)
from eventctx.importers.source.lines import (
    count,
    list_or_empty,
    nanoseconds,
    not_understood,
    object_or_empty,
    parse_rows,
    text_or_none,
    without,
)
from eventctx.importers.source.naming import RecordNames, words_in
from eventctx.importers.source.values import decode, encode
from eventctx.log.usage import form_of_qwen, read_usage, with_prompt
from eventctx.messages.facts_reader import read_facts

_TYPES: Final = frozenset(("user", "assistant", "tool_result", "system"))
_SPOKEN: Final = frozenset((None, "mid_turn_user_message", "agent_launch_prompt"))
"""Subtypes of a person's messages; all others in the user's role are the program's."""

_NOT_SENT: Final = frozenset(("realtime_message", "code_mode_tool_result"))
_FAILED: Final = frozenset(("error", "cancelled"))


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a record of a chat."""
    inner = value.get("message")
    own = "systemPayload" in value or (
        isinstance(inner, dict) and isinstance(inner.get("parts"), list)
    )
    return own and "uuid" in value and "sessionId" in value


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one chat. ``name`` is used where no line gives a session id."""
    chat = _Chat(name)
    return parse_rows(lines, decode, chat.row, chat.end(ended))


class _Step(NamedTuple):
    """A record on the way to the last one: the place after which it is, and what it compacted."""

    place: int
    compaction: int | None = None
    before: tuple[InPlace, ...] = ()


class _Answer(NamedTuple):
    line: int
    time: int | None
    round: object
    blocks: list[Any]
    record: dict[str, Any]


class _Chat:
    """``steps`` are the records from the root to the last one, in their order, by their names.

    ``latest`` is the name of the last record with an id.
    """

    def __init__(self, name: str) -> None:
        self.name = stem(name)
        self.begun = False
        self.history = History()
        self.contents = GoogleContents()
        self.steps: dict[str, _Step] = {}
        self.names = RecordNames()
        self.latest: dict[str, str] = {}
        self.last: str | None = None
        self.held: _Answer | None = None
        self.calling = False
        self.spoken: tuple[str, int] | None = None
        self.line = 0

    def row(self, line: int, data: bytes, row: Any) -> Iterator[Item]:
        """The items of one line."""
        self.line = line
        record = object_or_empty(row)
        yield from self._begin(line, record)
        kind, own = record.get("type"), record.get("uuid")
        if not isinstance(kind, str) or kind not in _TYPES or not isinstance(own, str):
            name = kind if isinstance(kind, str) and kind else "untyped"
            yield from not_understood(line, name, data, "a record of a type that is not known")
            return
        name = self.names.name_of(own, _said_in(record))
        if name in self.steps and own != self.last:
            yield Raw(line, f"{kind}.repeated", data)
            return
        time = nanoseconds(record.get("timestamp"))
        if not self._joins(kind, record):
            yield from self._flush()
        if own != self.last:
            yield from self._go_to(line, time, record)
        self.latest[own] = name
        self.steps[name] = _Step(self.history.next)
        again, self.last = own == self.last, own
        if kind == "system":
            yield from self._system(line, time, data, record)
        elif kind == "assistant":
            yield from self._answer(line, time, data, record, again)
        else:
            yield from self._told(line, time, data, record)

    def _begin(self, line: int, record: dict[str, Any]) -> Iterator[Item]:
        if self.begun:
            return
        self.begun = True
        own = text_or_none(record.get("sessionId")) or self.name
        started, agent = nanoseconds(record.get("timestamp")), text_or_none(record.get("agentId"))
        if record.get("isSidechain") is True and agent:
            name = text_or_none(record.get("agentName")) or "subagent"
            yield Session(line, started, f"{own}.agent-{agent}", name, own)
            return
        forked = text_or_none(object_or_empty(record.get("forkedFrom")).get("sessionId"))
        yield Session(line, started, own, parent=forked, link="branch")

    def end(self, ended: Ended) -> Iterator[Item]:
        """A subagent's last answer, if nothing will be written to the file any more."""
        if not self.begun:
            yield Waiting(1, "no line names the session yet")
        elif ended():
            yield from self._flush()
            yield from self._close(self.line)
        elif self.held is not None:
            yield Waiting(self.held.line, "the last answer may still get more calls")

    # -- the tree --------------------------------------------------------------------------------

    def _go_to(self, line: int, time: int | None, record: dict[str, Any]) -> Iterator[Item]:
        """Go back to the record's parent, if the conversation is not there already."""
        parent = record.get("parentUuid")
        parent = parent if parent is None else str(parent)
        root = parent is None and (record["type"] != "system" or record.get("subtype") == "rewind")
        if not self.steps or parent == self.last or (parent is None and not root):
            return
        parent = parent if parent is None else self.latest.get(parent, parent)
        if parent is not None and parent not in self.steps:
            yield Warned(line, "the record's parent is not in the file; file order is followed")
            return
        ids = list(self.steps)
        left = ids[ids.index(parent) + 1 :] if parent is not None else ids
        steps = {own: self.steps.pop(own) for own in left}
        place = next(iter(steps.values())).place if steps else self.history.next
        undone = {s.compaction: s.before for s in steps.values() if s.compaction is not None}
        if undone or any(one.place >= place for one in self.history.now):
            yield from self._close(line)
        yield from self.history.cut(line, time, place, undone)

    # -- answers ---------------------------------------------------------------------------------

    def _joins(self, kind: str, record: dict[str, Any]) -> bool:
        """Whether a record continues the answer that waits: of its round, or a call without one."""
        if self.held is None or kind != "assistant":
            return False
        if record.get("agentRound") is None or record.get("uuid") == self.last:
            return True
        return _round(record) == self.held.round

    def _answer(
        self, line: int, time: int | None, data: bytes, record: dict[str, Any], again: bool
    ) -> Iterator[Item]:
        blocks = self.contents.blocks(_parts(record))
        yield Raw(line, "assistant.envelope", encode(_envelope(record)) if blocks else data)
        if self.held is not None:
            joined = {**self.held.record, **record}
            self.held = self.held._replace(
                line=line, blocks=self.held.blocks + blocks, record=joined
            )
            return
        if again and self.calling:
            # More of an answer that looked complete.
            yield from self._say(line, time, {"role": "assistant", "content": blocks})
            return
        self.held = _Answer(line, time, _round(record), blocks, record)
        if record.get("isSidechain") is not True:
            yield from self._flush()

    def _flush(self) -> Iterator[Item]:
        answer, self.held = self.held, None
        if answer is None:
            return
        yield from self._close(answer.line)
        reported = object_or_empty(answer.record.get("usageMetadata"))
        self.calling = True
        yield ModelCall(
            answer.line,
            None,
            text_or_none(answer.record.get("model")),
            usage=with_prompt(read_usage(reported, form_of_qwen(reported))),
            context_window=count(answer.record.get("contextWindowSize")) or None,
        )
        message = {"role": "assistant", "content": answer.blocks}
        yield from self._say(answer.line, answer.time, message)

    def _say(self, line: int, time: int | None, message: dict[str, Any]) -> Iterator[Item]:
        if message["content"]:
            self.history.add(message)
            yield MessageItem(line, time, message)

    def _close(self, line: int) -> Iterator[Item]:
        if self.calling:
            self.calling = False
            yield CallEnded(line, None)

    # -- what the model is told ------------------------------------------------------------------

    def _told(
        self, line: int, time: int | None, data: bytes, record: dict[str, Any]
    ) -> Iterator[Item]:
        kind, subtype = record["type"], _subtype(record)
        message = self.contents.message("user", _parts(record))
        if message is None or subtype in _NOT_SENT:
            yield Raw(line, kind, data)
            return
        yield Raw(line, f"{kind}.envelope", encode(_envelope(record)))
        yield from self._close(line)
        status = text_or_none(object_or_empty(record.get("toolCallResult")).get("status"))
        if status in _FAILED:
            message["content"] = [
                {**one, "is_error": True} if is_results([one]) else one
                for one in message["content"]
            ]
        spoken = _is_spoken(record)
        by_program = kind == "user" and not spoken
        if spoken and read_facts(message).human:
            self.spoken = record["uuid"], self.history.next
            if subtype != "mid_turn_user_message":
                yield TurnBegan(line, time)
        self.history.add(message)
        yield MessageItem(line, time, message, by_harness=by_program)

    # -- the program -----------------------------------------------------------------------------

    def _system(
        self, line: int, time: int | None, data: bytes, record: dict[str, Any]
    ) -> Iterator[Item]:
        subtype, payload = _subtype(record), object_or_empty(record.get("systemPayload"))
        kind = f"system/{subtype}"
        history = payload.get("compressedHistory")
        if subtype == "chat_compression" and isinstance(history, list):
            yield Raw(line, kind, data)
            yield from self._compressed(line, time, record, history, payload.get("info"))
        elif subtype == "agent_bootstrap":
            yield Raw(line, kind, data)
            for message in _messages(self.contents, list_or_empty(payload.get("history"))):
                self.history.add(message)
                yield MessageItem(line, time, message, by_harness=message["role"] == "user")
        else:
            yield Raw(line, kind, data)
            if subtype == "slash_command" and self._is_local(payload):
                # The command's words were recorded as a person's, and never sent.
                yield from self.history.cut(line, time, self.history.next - 1)

    def _is_local(self, payload: dict[str, Any]) -> bool:
        """Whether a command of the program itself ended that is the last message."""
        items = list_or_empty(payload.get("outputHistoryItems"))
        said = self.history.now[-1].says if self.history.now else b""
        command = GoogleContents().message("user", text_or_none(payload.get("rawCommand")) or "")
        return (
            payload.get("phase") == "result"
            and payload.get("sentToModel") is not True
            and bool(items)
            and all(object_or_empty(item).get("type") == "assistant" for item in items)
            and command is not None
            and self.spoken is not None
            and self.spoken[1] == self.history.next - 1
            and self.history.says(command) == said
        )

    def _compressed(
        self,
        line: int,
        time: int | None,
        record: dict[str, Any],
        contents: list[Any],
        info: object,
    ) -> Iterator[Item]:
        yield from self._close(line)
        about = object_or_empty(info)
        messages = _messages(GoogleContents(), contents)
        before, number = tuple(self.history.now), self.history.compactions
        trigger = text_or_none(about.get("triggerReason"))
        tokens = count(about.get("originalTokenCount")) or None
        rebuilt = self.history.rebuild(line, time, messages, trigger, tokens)
        yield from rebuilt.items
        if self.history.compactions > number:
            self.steps[self.latest[record["uuid"]]] = _Step(self.history.next, number, before)
        for index in rebuilt.added:
            self.history.add(messages[index])
            yield MessageItem(line, time, messages[index], by_harness=True)


def _messages(contents: GoogleContents, history: list[Any]) -> list[dict[str, Any]]:
    """The messages of a list of contents."""
    found = []
    for content in map(object_or_empty, history):
        role = "assistant" if content.get("role") == "model" else "user"
        message = contents.message(role, content.get("parts") or [])
        if message is not None:
            found.append(message)
    return found


def _is_spoken(record: dict[str, Any]) -> bool:
    """Whether a record holds a person's message, by its type."""
    by_person = record.get("provenance", "real_user") == "real_user"
    return record["type"] == "user" and _subtype(record) in _SPOKEN and by_person


def _said_in(record: dict[str, Any]) -> str:
    """A mark of what a person says in a record; empty for all other records."""
    return words_in(_parts(record)) if _is_spoken(record) else ""


def _subtype(record: dict[str, Any]) -> str | None:
    subtype = record.get("subtype")
    return subtype if subtype is None or isinstance(subtype, str) else "odd"


def _parts(record: dict[str, Any]) -> list[Any]:
    return list_or_empty(object_or_empty(record.get("message")).get("parts"))


def _round(record: dict[str, Any]) -> object:
    """The round of a subagent that a record is of; a record of its own where it has none."""
    if record.get("agentRound") is None:
        return record.get("uuid")
    return record.get("agentRunId"), record["agentRound"]


def _envelope(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what becomes a message."""
    inner = without(object_or_empty(record.get("message")), "parts")
    return {**record, "message": inner}
