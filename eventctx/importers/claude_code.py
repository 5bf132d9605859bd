"""Claude Code's JSONL: one line per content block, results between the blocks, 70 % progress.

An assistant message is put together by its ``id``, not by adjacency: results and meta rows that
stand between its lines are held back until it is complete, so that the transcript has calls before
results. It is complete when a later line proves it (see ``_Answer``); at the end of the file it
waits otherwise. What the model never sees is yielded as ``Raw``: whole lines, and of the lines that
became messages the line with ``"message":null``, so that no byte is lost. The second copy of each
result (``toolUseResult``) is in there.

File order is the order of the transcript. The ``parentUuid`` graph has branches that are no
branches (parallel results) and parents that are progress lines; it is kept, but not followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from eventctx.importers import harness
from eventctx.importers.document import stem
from eventctx.importers.items import (
    CallEnded,
    Compaction,
    Ended,
    Item,
    Line,
    Linked,
    Message,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    Usage,
    Waiting,
    Warned,
    never,
)
from eventctx.importers.lines import count, encode, nanoseconds, read_rows, read_value

NAME: Final = "claude-code"

_SYNTHETIC: Final = "<synthetic>"

# Kinds of lines of 2.0.76 to 2.1.42; any other is kept too, and counted as not understood.
_KNOWN: Final = frozenset(
    (
        "progress",
        "file-history-snapshot",
        "queue-operation",
        "summary",
        "system/compact_boundary",
        "system/stop_hook_summary",
        "system/turn_duration",
        "system/local_command",
        "system/api_error",
        "system/informational",
    )
)
_ENDS_TURN: Final = frozenset(("turn_duration", "stop_hook_summary", "compact_boundary"))
_STILL_OPEN: Final = frozenset((None, "tool_use", "pause_turn"))

# Lines without a session id may stand in front; a file names its session soon or never.
_LINES_WITHOUT_SESSION: Final = 1000


class Row(msgspec.Struct):
    """The fields of a line that decide what becomes of it. The rest is skipped unread."""

    type: str = ""
    subtype: str | None = None
    timestamp: msgspec.Raw = msgspec.Raw()  # noqa: RUF009 - immutable
    sessionId: str | None = None  # noqa: N815 - the format's own name, as below
    agentId: str | None = None  # noqa: N815
    isSidechain: bool | None = None  # noqa: N815
    isMeta: bool | None = None  # noqa: N815
    isCompactSummary: bool | None = None  # noqa: N815
    isApiErrorMessage: bool | None = None  # noqa: N815
    parentToolUseID: str | None = None  # noqa: N815
    message: msgspec.Raw = msgspec.Raw()  # noqa: RUF009
    data: msgspec.Raw = msgspec.Raw()  # noqa: RUF009
    compactMetadata: Any = None  # noqa: N815


class _Progress(msgspec.Struct):
    agentId: str | None = None  # noqa: N815


decode_row = msgspec.json.Decoder(Row).decode
_decode_progress = msgspec.json.Decoder(_Progress).decode
_decode_time = msgspec.json.Decoder().decode


def parse(lines: Iterable[Line], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one session file. ``name`` stands in for a session id that no line gives."""
    conversation = _Conversation(name)
    for item in read_rows(lines, decode_row, conversation.row):
        yield item
    yield from conversation.end(ended)


def _time(row: Row) -> int | None:
    raw = bytes(row.timestamp)
    return nanoseconds(_decode_time(raw)) if raw else None


def _usage(message: dict[str, Any]) -> Usage | None:
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return None
    read = count(usage.get("cache_read_input_tokens"))
    write = count(usage.get("cache_creation_input_tokens"))
    # Only the line that carries the stop reason is written after the provider's final count.
    exact = message.get("stop_reason") is not None
    return Usage(
        prompt=count(usage.get("input_tokens")) + read + write,
        output=count(usage.get("output_tokens")),
        cache_read=read,
        cache_write=write,
        output_exact=exact,
    )


class _Answer:
    """An assistant message that is being put together from its lines.

    It is complete when one of these follows: a line of another message id, a person's message, an
    interruption, a compaction, the end of a turn; or when its last line has a final stop reason
    and visible text. A result does not prove it: of parallel calls the first may be answered
    before the second is written.
    """

    def __init__(self, line: int, time: int | None, message: dict[str, Any]) -> None:
        self.line = line
        self.time = time
        self.message = message
        self.id = message.get("id")
        self.rest = _without_content(message)
        self.held: list[Item] = []

    def join(self, line: int, time: int | None, message: dict[str, Any]) -> Iterable[Item]:
        """Add another line's blocks; what its other keys replace is yielded, to lose nothing."""
        rest = _without_content(message)
        replaced, self.rest = self.rest, rest
        merged = self.message
        merged["content"] = _blocks(merged.get("content")) + _blocks(message.get("content"))
        for key, value in rest.items():
            merged[key] = value
        self.time = time if self.time is None else max(self.time, time or 0)
        return () if rest == replaced else (Raw(line, "assistant.replaced", encode(replaced)),)

    @property
    def complete(self) -> bool:
        if self.message.get("stop_reason") in _STILL_OPEN:
            return False
        blocks = _blocks(self.message.get("content"))
        last = blocks[-1] if blocks else None
        text = last.get("text") if isinstance(last, dict) else None
        return isinstance(text, str) and bool(text.strip())

    def items(self) -> Iterator[Item]:
        """The call, its answer, and what was held back."""
        message, line, time = self.message, self.line, self.time
        model = message.get("model")
        yield ModelCall(
            line,
            None,
            model=model if isinstance(model, str) else None,
            provider="anthropic",
            usage=_usage(message),
            finish_reason=_text(message.get("stop_reason")),
            response_id=_text(self.id),
        )
        yield Message(line, time, message)
        yield CallEnded(line, time)
        yield from self.held


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _without_content(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != "content"}


def _blocks(content: object) -> list[Any]:
    if isinstance(content, list):
        return content
    return [] if content is None else [{"type": "text", "text": content}]


class _Conversation:
    """What is remembered from line to line; its size does not grow with the file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.session: str | None = None
        self.before_session: list[Item] = []
        self.waited = 0
        self.agent: str | None = None
        self.sidechain: bool | None = None
        self.open: _Answer | None = None
        self.last_id: object = None
        self.boundary: tuple[str | None, int | None] = (None, None)
        self.linked: set[str] = set()

    # -- the session's name ----------------------------------------------------------------------

    def row(self, line: int, data: bytes, row: Row) -> Iterable[Item]:
        """The items of one line; until a line names the session they are put aside."""
        if self.session is not None:
            return self._items(line, data, row)
        if row.type in ("user", "assistant"):
            self.sidechain = bool(row.isSidechain)
        self.before_session.extend(self._items(line, data, row))
        self.waited += 1
        spoken = self.sidechain is not None
        if row.sessionId and (spoken or row.isSidechain is not None):
            return self._begin(row, row.sessionId, row.agentId if row.isSidechain else None)
        if self.waited >= _LINES_WITHOUT_SESSION or spoken:
            return self._begin(row, row.sessionId or stem(self.name), None)
        return ()

    def _begin(self, row: Row, session: str, agent: str | None) -> list[Item]:
        time = _time(row)
        self.session, self.agent = session, agent
        if self.sidechain is None:
            self.sidechain = agent is not None
        if agent is None:
            first = Session(1, time, session)
        else:
            first = Session(1, time, f"{session}.agent-{agent}", agent=agent, parent=session)
        items = [first, *self.before_session]
        self.before_session = []
        return items

    # -- lines -----------------------------------------------------------------------------------

    def _items(self, line: int, data: bytes, row: Row) -> Iterable[Item]:
        kind = row.type
        if kind == "progress":
            return self._progress(line, data, row)
        if row.isSidechain and self.sidechain is False:
            return (Raw(line, "sidechain", data),)
        if kind in ("user", "assistant"):
            return self._spoken(line, data, row)
        if kind != "system":
            return (Raw(line, kind or "untyped", data, kind in _KNOWN),)
        return self._system(line, data, row)

    def _progress(self, line: int, data: bytes, row: Row) -> Iterable[Item]:
        raw = Raw(line, "progress", data)
        details = bytes(row.data)
        if b'"agentId"' not in details:
            return (raw,)
        try:
            agent = _decode_progress(details).agentId
        except msgspec.DecodeError:
            agent = None
        if not agent or agent in self.linked or not row.sessionId:
            return (raw,)
        self.linked.add(agent)
        linked = Linked(line, _time(row), f"{row.sessionId}.agent-{agent}", row.parentToolUseID)
        return (raw, linked)

    def _system(self, line: int, data: bytes, row: Row) -> Iterable[Item]:
        kind = f"system/{row.subtype}"
        raw = Raw(line, kind, data, kind in _KNOWN)
        if row.subtype == "compact_boundary":
            facts = row.compactMetadata if isinstance(row.compactMetadata, dict) else {}
            self.boundary = (_text(facts.get("trigger")), count(facts.get("preTokens")) or None)
        if row.subtype in _ENDS_TURN:
            return (raw, *self._close())
        return (raw,)

    def _spoken(self, line: int, data: bytes, row: Row) -> Iterable[Item]:
        sliced = bytes(row.message)
        try:
            message, repaired = read_value(sliced) if sliced else (None, False)
        except ValueError:
            message, repaired = None, False
        if not isinstance(message, dict) or message.get("role") != row.type:
            return (
                Raw(line, row.type, data, understood=False),
                Warned(line, f"{row.type} line without a message of that role"),
            )
        if row.isApiErrorMessage:
            # Shown to the user, taken out again before the next request.
            return (Raw(line, "assistant.api_error", data),)
        if repaired:
            return (
                Raw(line, f"{row.type}.repaired", data),
                Warned(line, "text that JSON or UTF-8 cannot hold was replaced"),
                *self._message(line, row, message),
            )
        envelope = _envelope(data, sliced)
        kind = f"{row.type}.envelope" if envelope is not None else row.type
        raw = Raw(line, kind, data if envelope is None else envelope)
        return (raw, *self._message(line, row, message))

    def _message(self, line: int, row: Row, message: dict[str, Any]) -> Iterable[Item]:
        time = _time(row)
        if row.type == "assistant":
            return self._assistant(line, time, message)
        if row.isCompactSummary:
            trigger, tokens = self.boundary
            self.boundary = (None, None)
            compaction = Compaction(line, time, trigger, (message,), tokens_before=tokens)
            return (*self._close(), compaction)
        content = message.get("content")
        if not row.isMeta and harness.by_person(message):
            if harness.holds_results(content):
                # Results belong to the turn that asked for them.
                return (*self._close(), Message(line, time, message))
            return (*self._close(), TurnBegan(line, time), Message(line, time, message))
        if self.open is None:
            return (Message(line, time, message),)
        self.open.held.append(Message(line, time, message))
        text = harness.first_text(content) or ""
        return self._close() if text.startswith(harness.INTERRUPTED) else ()

    def _assistant(self, line: int, time: int | None, message: dict[str, Any]) -> Iterable[Item]:
        if message.get("model") == _SYNTHETIC:
            return (*self._close(), Message(line, time, message))
        answer_id = message.get("id")
        items: list[Item] = []
        if self.open is not None and self.open.id == answer_id and answer_id is not None:
            items.extend(self.open.join(line, time, message))
        elif answer_id is not None and answer_id == self.last_id:
            # More of a message that looked complete: no second call, but not lost either.
            items.extend(self._close())
            items.append(Message(line, time, message))
            return items
        else:
            items.extend(self._close())
            self.open = _Answer(line, time, message)
        if self.open.complete:
            items.extend(self._close())
        return items

    def _close(self) -> Iterable[Item]:
        answer, self.open = self.open, None
        if answer is None:
            return ()
        self.last_id = answer.id
        return answer.items()

    # -- the end ---------------------------------------------------------------------------------

    def end(self, ended: Ended) -> Iterator[Item]:
        """What is left at the end of the file."""
        if self.session is None:
            if not self.before_session:
                return
            if not ended():
                yield Waiting(1, "no line names the session yet")
                return
            yield from self._begin(Row(), stem(self.name), None)
        if self.open is not None:
            if ended():
                yield from self._close()
            else:
                yield Waiting(self.open.line, "the last answer may still grow")


_SPACED: Final = re.compile(rb'"message"\s*:\s*$')


def _envelope(data: bytes, message: bytes) -> bytes | None:
    """The line with ``null`` for its message; None when the message cannot be found in it."""
    start = data.find(b'"message":' + message)
    if start >= 0:
        start += len(b'"message":')
    else:
        start = data.find(message)
        if start < 0 or not _SPACED.search(data, max(0, start - 64), start):
            return None
    return b"".join((data[:start], b"null", data[start + len(message) :]))
