"""The records of Gemini CLI's chats: what marks them, and the messages that they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from eventctx.importers.formats.google.contents import (
    GoogleContents,
    calls_in,
    is_results,
    results_in,
)
from eventctx.importers.formats.google.history import CONTEXT
from eventctx.importers.source.lines import (
    list_or_empty,
    nanoseconds,
    object_or_empty,
    text_or_none,
    without,
)
from eventctx.importers.source.naming import words_in

SCREEN: Final = frozenset(("info", "error", "warning"))
"""Types of records of what the program showed, and never sent."""

TYPES: Final = SCREEN | {"user", "gemini"}
"""Every known ``type`` of a record."""

_BY_PROGRAM: Final = (CONTEXT, "<hook_context>", "System: Please continue.")
_OF_A_CALL: Final = frozenset(("id", "name", "args"))
_SETS: Final = ("$set", "$rewindTo")


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a line of a chat, or the whole of one."""
    if is_head(value):
        return "startTime" in value or isinstance(value.get("messages"), list)
    if text_or_none(value.get("type")) in TYPES:
        return all(key in value for key in ("id", "timestamp", "content"))
    return len(value) == 1 and any(key in value for key in _SETS)


def is_document(value: object) -> bool:
    """Whether a value is a whole chat."""
    return isinstance(value, dict) and is_head(value) and isinstance(value.get("messages"), list)


def is_head(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("sessionId"), str) and isinstance(value.get("projectHash"), str)


def said_in(record: dict[str, Any]) -> str:
    """A mark of what a person says in a record; of any other record, its type."""
    kind, content = str(record.get("type")), record.get("content")
    blocks = GoogleContents().blocks(content or []) if kind == "user" else []
    if not blocks or is_results(blocks) or is_by_program(blocks):
        return kind
    return words_in(content if isinstance(content, str | list) else [content])


def messages_of(
    records: list[dict[str, Any]], name_of: Callable[[dict[str, Any]], str]
) -> tuple[list[str], list[dict[str, Any]]]:
    """The messages of a history and the names of their records.

    Results that the list has twice count once: a resumed session has those of its calls' records
    and those that were sent.
    """
    contents = GoogleContents()
    owners: list[str] = []
    messages: list[dict[str, Any]] = []
    seen: set[str] = set()

    def take(record: dict[str, Any], role: str, blocks: list[Any]) -> None:
        results = results_in(blocks)
        if blocks and not (results and seen.issuperset(results)):
            seen.update(results)
            owners.append(name_of(record))
            messages.append({"role": role, "content": blocks})

    for record in records:
        if record.get("type") == "user":
            take(record, "user", contents.blocks(record.get("content") or []))
        elif record.get("type") == "gemini":
            take(record, "assistant", answer_blocks(contents, record))
            results = [call.get("result") or [] for call in tools_of(record)]
            take(record, "user", [block for one in results for block in contents.blocks(one)])
    return owners, messages


def answer_blocks(contents: GoogleContents, record: dict[str, Any]) -> list[Any]:
    """The blocks of an answer: its parts, or where the file has a text, what is next to it."""
    blocks = contents.blocks(record.get("content") or [])
    thinks = any(isinstance(one, dict) and one.get("type") == "thinking" for one in blocks)
    if not thinks and not calls_in(blocks):
        thoughts = [object_or_empty(one) for one in list_or_empty(record.get("thoughts"))]
        found = [{"type": "thinking", "thinking": _thought(one)} for one in thoughts]
        blocks = [one for one in found if one["thinking"]] + blocks
    known = calls_in(blocks)
    calls = [call for call in tools_of(record) if call.get("id") not in known]
    own = [{key: call[key] for key in call if key in _OF_A_CALL} for call in calls]
    return blocks + [contents.call(call) for call in own]


def _thought(thought: dict[str, Any]) -> str:
    subject, words = thought.get("subject"), text_or_none(thought.get("description")) or ""
    return f"**{subject}** {words}" if subject else words


def tools_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in list_or_empty(record.get("toolCalls")) if isinstance(one, dict)]


def tools_ended_at(record: dict[str, Any]) -> int | None:
    times = [nanoseconds(call.get("timestamp")) for call in tools_of(record)]
    return max([time for time in times if time is not None], default=None)


def is_media(content: Any) -> bool:
    """Whether a note on the screen is in truth the data that a tool's result came with."""
    return isinstance(content, list) and any("inlineData" in object_or_empty(p) for p in content)


def is_by_program(blocks: list[Any]) -> bool:
    first = object_or_empty(blocks[0]).get("text") if blocks else None
    return isinstance(first, str) and first.lstrip().startswith(_BY_PROGRAM)


def envelope_of(record: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """A record without what becomes messages; ``before`` is the answer that waits, if one does.

    Results that are sent are recorded with their calls, too, and become messages once.
    """
    parts = list_or_empty(record.get("content"))
    sent = [part for part in parts if "functionResponse" in object_or_empty(part)]
    known = [part for call in tools_of(before) for part in list_or_empty(call.get("result"))]
    again = bool(sent) and any(part not in known for part in parts)
    odd = None in parts or not isinstance(record.get("content"), str | list | dict)
    rest = record if again or odd else without(record, "content")
    listed = list_or_empty(record.get("toolCalls"))
    if not listed or tools_of(record) != listed:
        return rest
    calls = []
    for call in listed:
        whole = None in list_or_empty(call.get("result"))  # no message has a null
        calls.append(without(call, "args") if whole else without(call, "args", "result"))
    return {**rest, "toolCalls": calls}


def says_more(before: dict[str, Any], record: dict[str, Any]) -> bool:
    """Whether a record says what the one written again in its place does not."""
    if before.get("content") != record.get("content"):
        return True
    tools = [(call.get("args"), call.get("result")) for call in tools_of(record)]
    return any((call.get("args"), call.get("result")) not in tools for call in tools_of(before))
