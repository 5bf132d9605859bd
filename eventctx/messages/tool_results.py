"""What a tool's own result says of it: that it failed, and why.

A tool of Amplifier returns a failure as a value, ``ToolResult(success=False, error=…)``, and its
host reports that value like any other. A listener gets a copy of it, in one of these forms:

    {"success": false, "output": …, "error": …}   the fields, as JSON (loop-streaming, loop-events)
    "Error: no such file" | "Failed"              the text of the value (loop-basic)
    "{'success': False, …}"                       the text of a dict (loop-streaming, loop-events)

``failure_of`` reads values and their fields; ``failure_of_copy`` reads the texts too, and
``failure_of_row`` the text of a stored row, which some loops make from the same copy. A text that
the tool itself returned is content, whatever its first word is, so only a reader of copies may look
into texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.messages.encoding import decode_json

KIND: Final = "ToolFailed"
"""The type of a failure whose result names none."""

NO_REASON: Final = "the tool gave no reason"

TOOL_RESULT: Final = frozenset(("success", "output", "error", "content"))
"""The fields of Amplifier's ``ToolResult``."""

_RAISED: Final = ("Error executing tool: ", "Internal error executing tool: ")
_DENIED: Final = "Denied by hook: "

_MOST_DECODED: Final = 1_000_000
"""Longest text, in characters, that is decoded only to see whether it reports a failure."""


class ToolFailure(NamedTuple):
    """The type and the text of a failure. The text may be long, and may hold lone surrogates."""

    kind: str
    message: str


def failure_of(result: object) -> ToolFailure | None:
    """The failure that a tool's value or a dict of its fields reports; None where it reports none.

    Only a ``success`` that is ``False`` is a failure: an error beside a success is content.
    """
    if isinstance(result, Mapping):
        given: Mapping[Any, Any] = result
    elif isinstance(result, str | bytes | int | float | list | tuple | None):
        return None
    else:
        fields = ("success", "output", "error")
        given = {name: getattr(result, name, None) for name in fields}
    if given.get("success") is not False:
        return None
    error = given.get("error")
    kind = error.get("type") if isinstance(error, Mapping) else None
    message = _reason(error) or _reason(given.get("output")) or NO_REASON
    return ToolFailure(kind if isinstance(kind, str) and kind else KIND, message)


def failure_of_copy(result: object) -> ToolFailure | None:
    """The same for a host's copy of the value, which may be its text (see above)."""
    if not isinstance(result, str):
        return failure_of(result)
    if result == "Failed":
        return ToolFailure(KIND, NO_REASON)
    if result.startswith("Error: "):
        return ToolFailure(KIND, result.removeprefix("Error: ") or NO_REASON)
    if not result.startswith("{") or len(result) > _MOST_DECODED:
        return None
    if result.startswith("{'success': False") or result.endswith(", 'success': False}"):
        return ToolFailure(KIND, result)
    return failure_of(_decoded(result)) if '"success"' in result else None


def failure_of_row(text: str) -> ToolFailure | None:
    """The failure in the text of a row that has no field for one; None where it tells none.

    Besides the forms above these are the words that loops have for calls without a result. A JSON
    object counts only with a ``ToolResult``'s fields: commands print other ones.
    """
    if text.startswith(_DENIED):
        return ToolFailure(KIND, text)
    for words in _RAISED:
        if text.startswith(words):
            return ToolFailure(KIND, text.removeprefix(words) or NO_REASON)
    if text.startswith("{"):
        given = _decoded(text) if '"success"' in text and len(text) <= _MOST_DECODED else None
        return (
            failure_of(given) if isinstance(given, dict) and given.keys() <= TOOL_RESULT else None
        )
    return failure_of_copy(text)


def answer_of_copy(result: object) -> str | None:
    """The text in a host's copy: of a ``ToolResult``'s fields their output; None without one."""
    if isinstance(result, Mapping) and "success" in result and result.keys() <= TOOL_RESULT:
        result = result.get("output")
    if result is None or isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return None


def _decoded(text: str) -> object:
    try:
        return decode_json(text)
    except msgspec.DecodeError:
        return None


def _reason(value: object) -> str:
    """A reason in words: a text, the message of an error, else the value as JSON; "" for none."""
    if isinstance(value, Mapping):
        message = value.get("message", value.get("msg"))
        if isinstance(message, str) and message:
            return message
    if isinstance(value, str) or not value:
        return value if isinstance(value, str) else ""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return ""
