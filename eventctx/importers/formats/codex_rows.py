"""The lines of a Codex rollout, with those of the file in which its history begins.

A rollout with paginated history does not repeat what it goes on from: its head names the thread and
the first ``ordinal`` that no longer counts. The lines before that one are read from the file of the
thread, after the head, as if they were there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from eventctx.importers.source.items import FileLine
from eventctx.importers.source.lines import (
    PAUSE,
    item_facts_or_none,
    object_or_empty,
    read_lines,
    text_or_none,
    unreadable,
)
from eventctx.importers.source.values import BROKEN, decode, encode, read_and_encode, read_value

TYPES: Final = frozenset(
    (
        *("session_meta", "response_item", "event_msg", "turn_context", "compacted"),
        *("world_state", "token_usage_record", "inter_agent_communication_metadata"),
    )
)


# Events for the user interface; response items repeat them, or they concern no item.
EVENTS: Final = frozenset(
    (
        "agent_message",
        "agent_reasoning",
        "agent_reasoning_raw_content",
        "agent_reasoning_section_break",
        "apply_patch_approval_request",
        "background_event",
        "collab_agent_interaction_begin",
        "collab_agent_interaction_end",
        "collab_agent_spawn_begin",
        "collab_agent_spawn_end",
        "collab_close_begin",
        "collab_close_end",
        "collab_waiting_begin",
        "collab_waiting_end",
        "context_compacted",
        "dynamic_tool_call_request",
        "dynamic_tool_call_response",
        "entered_review_mode",
        "error",
        "exec_approval_request",
        "exec_command_begin",
        "exec_command_end",
        "exec_command_output_delta",
        "exited_review_mode",
        "guardian_assessment",
        "image_generation_begin",
        "image_generation_end",
        "item_completed",
        "mcp_tool_call_begin",
        "mcp_tool_call_end",
        "patch_apply_begin",
        "patch_apply_end",
        "plan_update",
        "stream_error",
        "sub_agent_activity",
        "task_complete",
        "task_started",
        "thread_name_updated",
        "thread_rolled_back",
        "thread_goal_updated",
        "thread_settings_applied",
        "token_count",
        "turn_aborted",
        "turn_diff",
        "undo_completed",
        "undo_started",
        "user_message",
        "view_image_tool_call",
        "warning",
        "web_search_begin",
        "web_search_end",
    )
)


# Written outside the conversation and never sent.
NOT_SENT: Final = frozenset(("ghost_snapshot",))


class RolloutRow(msgspec.Struct):
    """One line."""

    type: str = ""
    timestamp: Any = None
    ordinal: Any = None
    payload: msgspec.Raw = msgspec.Raw()


class EventKind(msgspec.Struct):
    """The type of an event."""

    type: str = ""


decode_row = msgspec.json.Decoder(RolloutRow).decode


decode_kind = msgspec.json.Decoder(EventKind).decode


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a line of a rollout."""
    return text_or_none(value.get("type")) in TYPES and isinstance(value.get("payload"), dict)


def origin_of(
    about: dict[str, Any],
) -> tuple[str | None, Literal["subagent", "branch"], str | None]:
    """The thread that this one comes from, what it is to that one, and the agent's role."""
    subagent = object_or_empty(object_or_empty(about.get("source")).get("subagent"))
    spawn = object_or_empty(subagent.get("thread_spawn"))
    parent = text_or_none(spawn.get("parent_thread_id"))
    if parent:
        return parent, "subagent", text_or_none(spawn.get("agent_role"))
    return text_or_none(about.get("forked_from_id")) or None, "branch", None


def continued_name(thread: str, name: str, base: HistoryBase) -> str:
    """The name of a thread's further file: what the file's own name has from the thread's id on."""
    own = name[name.index(thread) :] if thread in name else thread
    return own if own != thread else f"{thread}_{base.end}"


def value_of(raw: msgspec.Raw) -> tuple[Any, str]:
    value, _, repaired = value_and_encoding(raw)
    return value, repaired


def value_and_encoding(raw: msgspec.Raw) -> tuple[Any, bytes | None, str]:
    try:
        return read_and_encode(bytes(raw))
    except ValueError:
        return None, None, ""


def envelope_of(data: bytes, payload: object) -> bytes:
    """The line with another payload and its own keys in their order; whole if that says less."""
    try:
        value = decode(data)
    except BROKEN:
        return data
    return encode({**value, "payload": payload})


def by_harness(payload: dict[str, Any]) -> bool:
    """Whether an item says that Codex wrote all its contents, as items of later releases do."""
    about = object_or_empty(payload.get("internal_chat_message_metadata_passthrough"))
    kinds, content = about.get("content_item_kinds"), payload.get("content")
    if payload.get("role") != "user" or not isinstance(kinds, list) or not kinds:
        return False
    whole = isinstance(content, list) and len(content) == len(kinds)
    return whole and not any(isinstance(kind, str) and _is_persons(kind) for kind in kinds)


def _is_persons(kind: str) -> bool:
    """Whether contents of this kind count as a person's; what replaces an image does, too."""
    beside = ("", "unknown", "images.preparation_error", "images.unsupported", "audio.unsupported")
    return kind.startswith("user.") or kind in beside


def replacement_of(history: object, payload: Any) -> list[dict[str, Any]]:
    """The messages in place of all earlier ones: the list, or in older releases the summary."""
    if isinstance(history, list):
        return [item for item in history if item_facts_or_none(item) is not None]
    summary = text_or_none(object_or_empty(payload).get("message"))
    if summary is None or not summary.strip():
        return []
    text = {"type": "input_text", "text": summary}
    return [{"type": "message", "role": "user", "content": [text]}]


# -- history that was copied from another thread -------------------------------------------------


_AT_ONCE: Final = 2 * 10**9
"""Nanoseconds within which the copies are written that have the time of the fork."""


class CopiedHistory:
    """Whether the lines are copies of another thread's, whose calls count there.

    A forked rollout, or a subagent's, may repeat the history of its parent before its own: with the
    parent's head or without, with the parent's times or that of the fork. Turns of its own have an
    id that was made after the thread's (UUID 7). Lines of a base are copies, too.
    """

    def __init__(self) -> None:
        self.now = False
        self._thread: str | None = None
        self._created: int | None = None
        self._forked = self._in_parent = False
        self._by_turn: bool | None = None
        self._base = 0

    def begin(
        self, thread: str, time: int | None, *, forked: bool, base: HistoryBase | None
    ) -> None:
        """Take what the head of the rollout says."""
        self._thread, self._created, self._forked = thread, time, forked
        self._base = 0 if base is None else base.end

    def see(self, row: RolloutRow, time: int | None) -> None:
        """Take the next line."""
        if self._base and type(row.ordinal) is int:
            self.now = row.ordinal < self._base
        elif self._forked:
            self._see_copy(row)
            late = self._in_parent and self._after_head(time) <= _AT_ONCE
            by_time = late or self._after_head(time) < 0
            self.now = by_time if self._by_turn is None else self._by_turn

    def _see_copy(self, row: RolloutRow) -> None:
        if row.type != "session_meta" and b'"turn_id"' not in bytes(row.payload):
            return
        payload = object_or_empty(value_of(row.payload)[0])
        if row.type == "session_meta":
            self._in_parent = text_or_none(payload.get("id")) not in (None, self._thread)
            return
        turn, thread = _made(payload.get("turn_id")), _made(self._thread)
        if turn is not None and thread is not None:
            self._by_turn = turn < thread

    def _after_head(self, time: int | None) -> int:
        """Nanoseconds from the head to a line."""
        return 0 if time is None or self._created is None else time - self._created


def _made(name: object) -> int | None:
    """The milliseconds in a UUID 7; None for any other name."""
    parts = name.split("-") if isinstance(name, str) else []
    if [len(one) for one in parts] != [8, 4, 4, 4, 12] or not parts[2].startswith("7"):
        return None
    try:
        return int(parts[0] + parts[1], 16)
    except ValueError:
        return None


# -- the file in which the history begins ----------------------------------------------------------

_MOST_BASES = 32
"""A thread that was reverted more often begins in the middle."""


class HistoryBase(NamedTuple):
    """The thread that a rollout goes on from, and the ordinal after the last line that counts."""

    thread: str
    end: int


def base_of(payload: dict[str, Any]) -> HistoryBase | None:
    """The base that a ``session_meta`` names; None where the file holds all of its history."""
    base = object_or_empty(payload.get("history_base"))
    thread, end = text_or_none(base.get("thread_id")), base.get("end_ordinal_exclusive")
    return HistoryBase(thread, end) if thread and type(end) is int and end > 0 else None


def with_base(path: Path, lines: Iterable[FileLine]) -> Iterator[FileLine]:
    """The lines of a rollout, those of its base after the first one. Raises UnreadableFile."""
    source = iter(lines)
    first = next(source, None)
    base = None if first is None else _base(first)
    if first is None or base is None:
        yield from source if first is None else chain((first,), source)
        return
    yield first
    added = 0
    try:
        for line in _lines_of(path, base, _MOST_BASES):
            added += 1
            yield line._replace(number=1 + added, terminated=True)
    except OSError as error:
        raise unreadable(path, error) from error
    for line in source:
        yield line if line is PAUSE else line._replace(number=line.number + added)


def _lines_of(path: Path, base: HistoryBase, most: int) -> Iterator[FileLine]:
    """The lines of a base, and of what it goes on from itself."""
    file = _file_of(path, base)
    if file is None or most == 0:
        return
    for line in read_lines(file):
        row = _row(line)
        ordinal = row.get("ordinal")
        if type(ordinal) is int and ordinal >= base.end:
            return
        yield line
        before = _base(line) if line.number == 1 else None
        if before is not None:
            yield from _lines_of(file, before, most - 1)


def _file_of(path: Path, base: HistoryBase) -> Path | None:
    """The newest file of the thread, older than this one, that has the last line that counts."""
    named = f"*{base.thread}*.jsonl"
    found = {*path.parent.glob(named), *_root(path).glob(f"*/*/*/{named}")}
    older = sorted((one for one in found if one.name < path.name), key=lambda one: one.name)
    return next((one for one in reversed(older) if _holds(one, base.end - 1)), None)


def _root(path: Path) -> Path:
    """Codex keeps its files by year, month and day."""
    days = path.parent.parts[-3:]
    return path.parents[3] if len(days) == 3 and all(map(str.isdigit, days)) else path.parent


def _holds(path: Path, ordinal: int) -> bool:
    mark = b'"ordinal"'
    rows = (_row(line) for line in read_lines(path) if mark in line.data)
    return any(row.get("ordinal") == ordinal and row.get("type") != "session_meta" for row in rows)


def _base(line: FileLine) -> HistoryBase | None:
    row = _row(line)
    payload = object_or_empty(row.get("payload"))
    return base_of(payload) if row.get("type") == "session_meta" else None


def _row(line: FileLine) -> dict[str, Any]:
    try:
        return object_or_empty(read_value(line.data)[0])
    except ValueError:
        return {}
