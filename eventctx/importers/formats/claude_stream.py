"""Claude Code's ``--output-format stream-json``, and the same messages from the Agent SDK.

A line has what a line of the session's own file has, under other names: ``parent_tool_use_id`` for
a subagent, ``isSynthetic``, ``compact_metadata``. So it is read as such a line
(``claude/conversation.py``). ``result`` ends a turn; partial messages (``stream_event``) give the
true count of an answer's output. A prompt is in the output only where the program was told to
replay it, so a turn may begin with an answer. ``--output-format json --verbose`` and GitHub's
action write the lines as one JSON list.

A session that is resumed writes to another file under the same id, so sessions are named after
their files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from eventctx.errors import MalformedTranscript
from eventctx.importers.formats.claude.conversation import ClaudeConversation
from eventctx.importers.formats.claude.route import KeptLines
from eventctx.importers.formats.claude.rows import ClaudeRow, time_of, value_of
from eventctx.importers.source.document import document_or_rows, stem
from eventctx.importers.source.items import (
    CompactionItem,
    Ended,
    FileLine,
    Item,
    Linked,
    Parser,
    Raw,
    Session,
    TurnBegan,
    TurnEnded,
    Warned,
    never,
)
from eventctx.importers.source.lines import (
    count,
    first_line,
    list_or_empty,
    object_or_empty,
    parse_rows,
    read_lines,
    text_or_none,
)
from eventctx.importers.source.values import BROKEN, encode
from eventctx.log.events import Status

_SPOKEN: Final = ("user", "assistant")
_KNOWN: Final = frozenset(
    (
        *("auth_status", "control_cancel_request", "control_request", "control_response"),
        *(
            "conversation_reset",
            "keep_alive",
            "prompt_suggestion",
            "rate_limit_event",
            "result",
            "stream_event",
        ),
        *("system", "tool_progress", "tool_use_summary", "transcript_mirror"),
    )
)
_OF_AGENT: Final = re.compile(rb'"parent_tool_use_id"\s*:\s*"')
_LOOKED_AT: Final = 50
_WORD: Final = re.compile(r"_([a-z])")


class StreamRow(msgspec.Struct):
    """The fields of a line that decide how it is read. The decoder skips all others."""

    type: str = ""
    subtype: str | None = None
    uuid: Any = None
    timestamp: msgspec.Raw = msgspec.Raw()
    session_id: str | None = None
    parent_tool_use_id: str | None = None
    agent_id: Any = None
    isSynthetic: Any = None  # noqa: N815 - the format's own name, as below
    isReplay: Any = None  # noqa: N815
    origin: Any = None
    error: Any = None
    retracted_message_uuids: Any = None
    message: msgspec.Raw = msgspec.Raw()
    event: msgspec.Raw = msgspec.Raw()
    compact_metadata: Any = None
    duration_ms: Any = None
    is_error: Any = None
    errors: Any = None
    result: Any = None
    terminal_reason: Any = None
    trigger: Any = None

    @property
    def agent(self) -> str | None:
        """The subagent whose line this is; None for the main session's."""
        if self.parent_tool_use_id is None:
            return None
        return text_or_none(self.agent_id) or self.parent_tool_use_id


_decode_row: Final = msgspec.json.Decoder(StreamRow).decode


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a line of the output."""
    if not isinstance(value.get("session_id"), str):
        return False
    kind = value.get("type")
    if kind == "system":
        # The first releases give their lines no id of their own.
        return isinstance(value.get("subtype"), str) and ("uuid" in value or "mcp_servers" in value)
    body = "event" if kind == "stream_event" else "message"
    known = kind == "stream_event" or kind in _SPOKEN
    return known and "parent_tool_use_id" in value and isinstance(value.get(body), dict)


def is_document(value: object) -> bool:
    """Whether a document is a list of such lines."""
    rows = value[:_LOOKED_AT] if isinstance(value, list) else []
    return any(map(_is_row, rows))


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of the main session."""
    return _items_of(lines, name, None, ended)


def others(path: Path) -> list[Parser]:
    """A parser for each subagent whose lines are among those of the main session."""
    found: dict[str, None] = {}
    try:
        for line in _rows_of(read_lines(path), path.name):
            if _OF_AGENT.search(line.data):
                found.update(dict.fromkeys(_agent_in(line.data)))
    except (OSError, MalformedTranscript):
        return []  # a file that was followed may be gone, or half written
    return [_of_agent(agent) for agent in found]


def _agent_in(data: bytes) -> list[str]:
    try:
        row = _decode_row(data)
    except BROKEN:
        return []
    return [row.agent] if row.agent is not None and row.type in _SPOKEN else []


def _of_agent(agent: str) -> Parser:
    def parse_one(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
        return _items_of(lines, name, agent, ended)

    return parse_one


def _items_of(
    lines: Iterable[FileLine], name: str, agent: str | None, ended: Ended
) -> Iterator[Item]:
    stream = _Stream(name, agent)
    rows = _rows_of(lines, name)
    if agent is not None:
        rows = (line for line in rows if _OF_AGENT.search(line.data))
    try:
        yield from parse_rows(rows, _decode_row, stream.row, stream.conversation.end(ended))
    finally:
        stream.conversation.results.close()


def _rows_of(lines: Iterable[FileLine], name: str) -> Iterator[FileLine]:
    """The lines; of a file that is one list, a line for each of its elements."""
    first, lines = first_line(lines)
    if first is None or not first.data.lstrip().startswith(b"["):
        yield from lines
        return
    document, lines = document_or_rows(lines, name, _is_row)
    if document is None:
        yield from lines
        return
    yield from (FileLine(number, encode(row)) for number, row in enumerate(document.value, 1))


def _is_row(value: object) -> bool:
    return isinstance(value, dict) and is_row(value)


class _Stream:
    """The lines of one session, turned into those of its own file."""

    def __init__(self, name: str, agent: str | None) -> None:
        self.name = stem(name)
        self.conversation = ClaudeConversation(name, agent)
        self.agent = agent
        self.in_turn = False
        self.told = False
        self.linked: set[str] = set()
        self.boundary: ClaudeRow | None = None

    def row(self, line: int, data: bytes, row: StreamRow) -> Iterator[Item]:
        """The items of one line."""
        if self.agent is not None and row.agent != self.agent:
            return
        for item in self._row(line, data, row):
            self.in_turn = self.in_turn or isinstance(item, TurnBegan)
            yield item

    def _row(self, line: int, data: bytes, row: StreamRow) -> Iterator[Item]:
        like = _as_line_of_session(row, self.name)
        mine = row.agent == self.agent
        answers = mine and row.type == "assistant"
        if answers and self.conversation.session is not None:
            yield from self._begin(line, like)
        if row.type == "user" and mine and self.boundary is not None and row.isReplay is not True:
            # The summary follows its boundary; a result of a tool, which may, is no string.
            like.isCompactSummary = _is_text(row)
            self.boundary = None if like.isCompactSummary else self.boundary
        if row.subtype == "compact_boundary" and mine:
            self.boundary = like
        known = row.type in _KNOWN
        for item in self.conversation.row(line, data, like):
            if isinstance(item, Raw) and item.line == line and row.type not in _SPOKEN:
                item = Raw(line, _kind_of(row), item.data, known)
            yield item
            if answers and isinstance(item, Session):
                yield from self._begin(line, like)
        if not mine:
            yield from self._link(line, row, like)
        elif row.type == "stream_event":
            self._count(row)
        elif row.type == "conversation_reset":
            yield CompactionItem(line, time_of(like), text_or_none(row.trigger), ())
        elif row.type == "result":
            yield _end_of_turn(line, row, like)
            self.in_turn = False

    def _begin(self, line: int, like: ClaudeRow) -> Iterator[Item]:
        """What an answer tells: that a turn has begun, and that a compaction left no summary."""
        told, self.boundary = self.boundary, None
        if told is not None:
            facts = self.conversation.boundary
            self.conversation.route.note_summary(None, None, line, KeptLines())
            yield CompactionItem(
                line, time_of(like), facts.trigger, (), tokens_before=facts.tokens, took=facts.took
            )
            yield Warned(line, "the summary of a compaction is not in the output")
        if self.in_turn:
            return
        yield TurnBegan(line, time_of(like))
        if not self.told and self.agent is None:
            self.told = True
            yield Warned(
                line,
                "the prompt is not in the output (with --replay-user-messages it is); the "
                "session's own file has it",
            )

    def _link(self, line: int, row: StreamRow, like: ClaudeRow) -> Iterator[Item]:
        agent, session = row.agent, self.conversation.session
        if agent is not None and session is not None and agent not in self.linked:
            self.linked.add(agent)
            name = f"{session}.agent-{agent}"
            yield Linked(line, time_of(like), name, row.parent_tool_use_id)

    def _count(self, row: StreamRow) -> None:
        """Take the count of the output at the end of the open answer, which no message has."""
        event = object_or_empty(value_of(bytes(row.event)))
        answer = self.conversation.open
        if event.get("type") != "message_delta" or answer is None:
            return
        counted = answer.message.get("usage") or {}
        if isinstance(counted, dict):
            told = object_or_empty(event.get("usage")).items()
            # A value of another type, or too large, is no count of the same thing: it stays.
            final = {key: n for key, n in told if n and _counts_as(n, counted.get(key) or n)}
            answer.count_again({"usage": {**counted, **final}})


def _counts_as(told: object, before: object) -> bool:
    """Whether a value is of the same kind as the one that it replaces."""
    return isinstance(before, type(told)) and (type(before) is not int or count(before) > 0)


def _as_line_of_session(row: StreamRow, session: str) -> ClaudeRow:
    """A line as the program writes it to the session's file."""
    return ClaudeRow(
        type="system" if row.type == "result" else row.type,
        # It closes the answer, and tells how long the turn took.
        subtype="turn_duration" if row.type == "result" else row.subtype,
        uuid=row.uuid,
        timestamp=row.timestamp,
        sessionId=session,
        agentId=row.agent,
        isSidechain=row.agent is not None,
        isMeta=row.isSynthetic is True,
        isApiErrorMessage=isinstance(row.error, str) and b'"<synthetic>"' in bytes(row.message),
        origin=row.origin,
        message=row.message,
        compactMetadata=_camel_case(row.compact_metadata),
        retractedMessageUuids=row.retracted_message_uuids,
        durationMs=row.duration_ms,
    )


def _camel_case(value: Any, levels: int = 8) -> Any:
    """A value with the names that the session's file has: ``pre_tokens`` is ``preTokens`` there.

    Below so many ``levels`` names stay: the program's own values have three.
    """
    if not isinstance(value, dict) or levels == 0:
        return value
    return {
        _WORD.sub(lambda found: found[1].upper(), key): _camel_case(inner, levels - 1)
        for key, inner in value.items()
    }


def _is_text(row: StreamRow) -> bool:
    content = object_or_empty(value_of(bytes(row.message))).get("content")
    blocks = list_or_empty(content)
    results = [one for one in blocks if object_or_empty(one).get("type") == "tool_result"]
    return (isinstance(content, str) or bool(blocks)) and not results


def _kind_of(row: StreamRow) -> str:
    return f"{row.type}/{row.subtype}" if row.subtype else row.type or "untyped"


def _end_of_turn(line: int, row: StreamRow, like: ClaudeRow) -> TurnEnded:
    if str(row.terminal_reason).startswith("aborted"):
        return TurnEnded(line, time_of(like), "cancelled")
    if row.is_error is not True and row.subtype in (None, "success"):
        return TurnEnded(line, time_of(like))
    said = [one for one in (*list_or_empty(row.errors), row.result) if isinstance(one, str) and one]
    status: Status = "error"
    return TurnEnded(line, time_of(like), status, said[0] if said else row.subtype)
