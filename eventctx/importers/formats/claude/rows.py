"""A line of Claude Code's JSONL: the fields that decide how it is read, and the rest of it."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.importers.source.lines import (
    count,
    list_or_empty,
    nanoseconds,
    object_or_empty,
    text_or_none,
)
from eventctx.importers.source.values import BROKEN, decode, read_and_encode

KNOWN_KINDS: Final = frozenset(
    (
        "progress",
        "file-history-snapshot",
        "queue-operation",
        "summary",
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "atis-latch",
        "attribution-snapshot",
        "bridge-session",
        "cost-state",
        "custom-title",
        "frame-link",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "relocated",
        "tag",
        "task-summary",
        "tools-used",
        "worktree-state",
        "system/compact_boundary",
        "system/microcompact_boundary",
        "system/stop_hook_summary",
        "system/turn_duration",
        "system/local_command",
        "system/api_error",
        "system/api_refusal",
        "system/model_refusal_fallback",
        "system/error",
        "system/informational",
    )
)
"""Kinds of lines without a message, as 2.0.76 to 2.1.330 write them. A line of another kind is
kept, too, and counts as not understood."""

_MOST_MILLISECONDS: Final = 10**11
_SPACED: Final = re.compile(rb'"(?:message|shape)"\s*:\s*$')


class ClaudeRow(msgspec.Struct):
    """The fields of a line that decide how it is read. The decoder skips all others."""

    type: str = ""
    subtype: str | None = None
    uuid: Any = None
    parentUuid: Any = msgspec.UNSET  # noqa: N815 - the format's own name, as below
    timestamp: msgspec.Raw = msgspec.Raw()
    sessionId: str | None = None  # noqa: N815
    agentId: str | None = None  # noqa: N815
    isSidechain: bool | None = None  # noqa: N815
    isMeta: bool | None = None  # noqa: N815
    isCompactSummary: bool | None = None  # noqa: N815
    isApiErrorMessage: bool | None = None  # noqa: N815
    isVisibleInTranscriptOnly: Any = None  # noqa: N815
    forkedFrom: Any = None  # noqa: N815
    origin: Any = None
    promptSource: Any = None  # noqa: N815
    turnOrigin: Any = None  # noqa: N815
    parentToolUseID: str | None = None  # noqa: N815
    message: msgspec.Raw = msgspec.Raw()
    data: msgspec.Raw = msgspec.Raw()
    toolUseResult: msgspec.Raw = msgspec.Raw()  # noqa: N815
    attachment: msgspec.Raw = msgspec.Raw()
    compactMetadata: Any = None  # noqa: N815
    microcompactMetadata: Any = None  # noqa: N815
    retractedMessageUuids: Any = None  # noqa: N815
    requestRef: Any = None  # noqa: N815
    durationMs: Any = None  # noqa: N815

    @property
    def by_harness(self) -> bool:
        """Whether the line says that no person wrote its message, as Claude Code itself decides.

        Lines of programs that use Claude Code (``sdk``) count as a person's.
        """
        return (
            self.isMeta is True
            or self.isVisibleInTranscriptOnly is True
            or is_of_program(self.origin)
            or self.promptSource == "system"
            or self.turnOrigin == "task_notification"
        )


decode_row = msgspec.json.Decoder(ClaudeRow).decode
_decode_time: Final = msgspec.json.Decoder().decode


def is_of_program(origin: object) -> bool:
    """Whether the ``origin`` of a message names another speaker than a person."""
    return object_or_empty(origin).get("kind") not in (None, "human")


def time_of(row: ClaudeRow) -> int | None:
    """The time of a line in UTC nanoseconds; None where it has none that can be read."""
    raw = bytes(row.timestamp)
    try:
        # What ``decode`` refuses to change in a value is in no text or number that is a time.
        return nanoseconds(_decode_time(raw)) if raw else None
    except BROKEN:
        return None


def in_nanoseconds(milliseconds: object) -> int | None:
    """A duration in the file's milliseconds, in nanoseconds; None for a value that is none."""
    sound = type(milliseconds) is int and 0 <= milliseconds <= _MOST_MILLISECONDS
    return milliseconds * 1_000_000 if sound else None  # type: ignore[operator]


class Boundary(NamedTuple):
    """Facts of a compaction, from the line before its summary; ``took`` is in nanoseconds.

    ``kept`` are the names of the lines that stay in the conversation, or, where the program names
    only the first and the last of them, ``segment``. ``kept_first``: they come before the summary.
    """

    trigger: str | None = None
    tokens: int | None = None
    took: int | None = None
    kept: tuple[str, ...] = ()
    segment: tuple[str, str] | None = None
    kept_first: bool = False


def boundary_of(row: ClaudeRow) -> Boundary:
    """The facts in a ``compact_boundary`` line; a field without a sound value is None."""
    facts = object_or_empty(row.compactMetadata)
    named = object_or_empty(facts.get("preservedMessages"))
    segment = object_or_empty(facts.get("preservedSegment"))
    kept = [one for one in list_or_empty(named.get("uuids")) if isinstance(one, str)]
    head, tail = text_or_none(segment.get("headUuid")), text_or_none(segment.get("tailUuid"))
    # They follow the summary that is the anchor; where it is the boundary, the summary comes last.
    anchor = (named if kept else segment).get("anchorUuid")
    return Boundary(
        text_or_none(facts.get("trigger")),
        count(facts.get("preTokens")) or None,
        in_nanoseconds(facts.get("durationMs")),
        tuple(kept),
        (head, tail) if head and tail else None,
        anchor is not None and anchor == row.uuid,
    )


def value_of(data: bytes) -> Any:
    """The JSON value of a line or a part of it; None where it cannot be read."""
    try:
        return decode(data) if data else None
    except BROKEN:
        return None


def envelope_of(data: bytes, message: bytes) -> bytes | None:
    """The line with ``null`` for its message or shape; None if the line does not contain it."""
    start = data.find(b'"message":' + message)
    if start >= 0:
        start += len(b'"message":')
    else:
        start = data.find(message)
        if start < 0 or not _SPACED.search(data, max(0, start - 64), start):
            return None
    return b"".join((data[:start], b"null", data[start + len(message) :]))


def read_message(data: bytes) -> tuple[Any, bytes | None, str]:
    """A message's value, its encoding if it needs no repair, and a warning if it does.

    The value is None where there is none that can be read.
    """
    if not data:
        return None, None, ""
    try:
        return read_and_encode(data)
    except ValueError:
        return None, None, ""


def source_of(row: ClaudeRow) -> str | None:
    """The session that a line was copied from, into a session that was branched from it.

    Its call was made there, and counts there.
    """
    source = text_or_none(object_or_empty(row.forkedFrom).get("sessionId"))
    return None if source == row.sessionId else source


class NamedAgent(msgspec.Struct):
    """The subagent that a part of a line names; ``status`` is that of a call that started it."""

    agentId: str | None = None  # noqa: N815 - the format's own name
    status: str | None = None

    @property
    def runs(self) -> bool:
        """Whether its call has a result, and it goes on."""
        return self.status == "async_launched"


_decode_agent: Final = msgspec.json.Decoder(NamedAgent).decode


def agent_in(part: msgspec.Raw) -> NamedAgent:
    """The subagent that a line of progress, or the program's own result of a call, is of."""
    details = bytes(part)
    if b'"agentId"' not in details:
        return NamedAgent()
    try:
        return _decode_agent(details)
    except BROKEN:
        return NamedAgent()
