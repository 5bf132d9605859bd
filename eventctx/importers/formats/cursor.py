"""Cursor's agent transcripts: JSON Lines, and the plain text that older releases wrote.

A line is a message under ``message``, with its role next to it. Nothing has an id, calls have no
results, and a person's prompt holds the only times. So calls get ids here, by their places, and a
result, if a file has one, answers the first open call. A text says where a call was answered, not
with what; what it shows after ``[Thinking]`` cannot be told from the answer, and stays one text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from eventctx.importers.source.document import stem
from eventctx.importers.source.items import (
    CallEnded,
    Ended,
    FileLine,
    Item,
    MessageItem,
    ModelCall,
    Paused,
    Raw,
    Session,
    TurnBegan,
    TurnEnded,
    Waiting,
    never,
)
from eventctx.importers.source.lines import (
    PAUSE,
    first_line,
    nanoseconds,
    not_understood,
    object_or_empty,
    parse_rows,
    text_of_content,
    text_or_none,
    without,
)
from eventctx.importers.source.values import decode, encode
from eventctx.messages.facts_reader import read_facts

_ROLES: Final = ("user", "assistant", "system")
_TIME: Final = re.compile(
    r"<timestamp>\w+, (\w{3} \d{1,2}, \d{4}, \d{1,2}:\d\d [AP]M) "
    r"\(UTC(?:([+-])(\d{1,2})(?::(\d\d))?)?\)</timestamp>"
)
_MARKS: Final = {b"user:": "user", b"assistant:": "assistant"}
_CALL: Final = "[Tool call] "
_RESULT: Final = "[Tool result]"
_ARGUMENT: Final = re.compile(r"  (\w+): (.*)", re.DOTALL)


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a message of a transcript, or the end of a turn."""
    if value.get("type") == "turn_ended":
        return "status" in value
    inner = value.get("message")
    told = isinstance(inner, dict) and "content" in inner and not inner.get("role")
    return told and value.get("role") in _ROLES and value.keys().isdisjoint(("content", "type"))


def is_text(line: FileLine) -> bool:
    """Whether this first line begins a transcript in plain text."""
    return line.data.strip() in _MARKS


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one transcript; no line names its session, so its file does."""
    first, lines = first_line(lines)
    conversation = _Conversation(stem(name).removesuffix(".txt"))
    if first is not None and is_text(first):
        return _text_items(lines, conversation, ended)
    return parse_rows(lines, decode, conversation.row, conversation.end())


class _Conversation:
    def __init__(self, name: str) -> None:
        self.name = name
        self.begun = False
        self.calls = 0
        self.open: list[str] = []

    def row(self, line: int, data: bytes, row: Any) -> Iterator[Item]:
        """The items of one line."""
        source = object_or_empty(row)
        inner = object_or_empty(source.get("message"))
        content, role = inner.get("content"), source.get("role")
        time = _time_of(source, content)
        yield from self.begin(line, time)
        if source.get("type") == "turn_ended":
            yield Raw(line, "turn_ended", data)
            status = text_or_none(source.get("status")) or "error"
            error = None if status == "success" else status
            yield TurnEnded(line, time, "ok" if error is None else "error", error)
            return
        if role not in _ROLES or not isinstance(content, str | list):
            kind = text_or_none(source.get("type")) or "untyped"
            yield from not_understood(line, kind, data, "a line without role and content")
            return
        message = {"role": role, "content": self._with_ids(content)}
        rest = {**source, "message": without(inner, "content")}
        if message["content"] == content:
            yield Raw(line, f"{role}.envelope", encode(rest))
        else:
            yield Raw(line, role, data)
        yield from self.say(line, time, message)

    def begin(self, line: int, time: int | None) -> Iterator[Item]:
        """The session, before anything else."""
        if not self.begun:
            self.begun = True
            yield Session(line, time, self.name)

    def say(self, line: int, time: int | None, message: dict[str, Any]) -> Iterator[Item]:
        """The items of one message."""
        if message["role"] == "assistant":
            yield ModelCall(line, None)
            yield MessageItem(line, time, message)
            yield CallEnded(line, time)
            return
        facts = read_facts(message)
        if facts.human:
            self.open.clear()
            yield TurnBegan(line, time)
        yield MessageItem(line, time, message, facts=facts)

    def _with_ids(self, content: str | list[Any]) -> str | list[Any]:
        if isinstance(content, str):
            return content
        return [self._with_id(block) for block in content]

    def _with_id(self, block: Any) -> Any:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_use" and not isinstance(block.get("id"), str):
            return {"type": kind, "id": self.call(), **without(block, "type", "id")}
        if kind == "tool_use":
            self.open.append(block["id"])
        elif kind == "tool_result" and self.open:
            answered = block.get("tool_use_id")
            call = answered if answered in self.open else self.open[0]
            self.open.remove(call)
            return {**block, "tool_use_id": call}
        return block

    def call(self) -> str:
        """The id of the next call."""
        self.calls += 1
        self.open.append(f"call-{self.calls}")
        return self.open[-1]

    def end(self) -> Iterator[Item]:
        """Nothing but a missing session waits: every line is written whole."""
        if not self.begun:
            yield Waiting(1, "there is no message yet")


def _time_of(row: dict[str, Any], content: object) -> int | None:
    """The time in a line, or the one that Cursor writes into a person's prompt, to the minute."""
    stamp = nanoseconds(row.get("timestamp"))
    found = _TIME.search(text_of_content(content)[:4000]) if stamp is None else None
    if found is None:
        return stamp
    hours, minutes = int(found[3] or 0), int(found[4] or 0)
    offset = timedelta(hours=hours, minutes=minutes) * (-1 if found[2] == "-" else 1)
    try:
        moment = datetime.strptime(found[1], "%b %d, %Y, %I:%M %p")
        return nanoseconds(moment.replace(tzinfo=timezone(offset)).isoformat())
    except ValueError:
        return None


# -- transcripts in plain text --------------------------------------------------------------------


def _text_items(
    lines: Iterable[FileLine], conversation: _Conversation, ended: Ended
) -> Iterator[Item]:
    """The items of a text; its last message may still grow."""
    role, number, held = "", 0, list[bytes]()
    for line in lines:
        if line is PAUSE:
            yield Paused(line.number)
        elif line.data.strip() in _MARKS and line.data[:1].isalpha():
            yield from _section(conversation, number, role, held)
            role, number, held = _MARKS[line.data.strip()], line.number, []
        else:
            held.append(line.data)
    if ended():
        yield from _section(conversation, number, role, held)
    elif role:
        yield from conversation.begin(number, None)
        yield Waiting(number, "the last message may still grow")


def _section(
    conversation: _Conversation, number: int, role: str, held: list[bytes]
) -> Iterator[Item]:
    """The items of one message: its text, and its calls."""
    if not role:
        return
    data = b"\n".join(held)
    text = data.decode("utf-8", "replace").strip()
    time = _time_of({}, text)
    yield from conversation.begin(number, time)
    if role == "assistant":
        content = _blocks(text, conversation)
        yield Raw(number, "assistant", data)
    else:
        content = [{"type": "text", "text": text}] if text else []
        if text.encode() != data.strip():
            yield Raw(number, "repaired", data)
    if content:
        yield from conversation.say(number, time, {"role": role, "content": content})


def _blocks(text: str, conversation: _Conversation) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    parts: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.startswith((_CALL, _RESULT)):
            parts.append([])
        parts[-1].append(line)
    for part in parts:
        if part and part[0].startswith(_CALL):
            name = part[0].removeprefix(_CALL).strip()
            arguments = _arguments(part[1:])
            call = conversation.call()
            blocks.append({"type": "tool_use", "id": call, "name": name, "input": arguments})
            continue
        prose = "\n".join(part[1:] if part and part[0].startswith(_RESULT) else part).strip()
        if prose:
            blocks.append({"type": "text", "text": prose})
    return blocks


def _arguments(lines: list[str]) -> dict[str, Any]:
    """Arguments as they are shown: an indented name each; what follows it belongs to it."""
    found: dict[str, Any] = {}
    name = ""
    for line in lines:
        match = _ARGUMENT.fullmatch(line)
        if match is not None:
            name = match[1]
            found[name] = match[2]
        elif name:
            found[name] += f"\n{line}"
    return {key: value.rstrip("\n") for key, value in found.items()}
