"""A step of an ATIF trajectory: its messages in OpenAI's chat dialect, and what is left of it.

A result that names no call answers all calls of its step that have none: a terminal shows the
output of several commands at once. Without calls it is an observation. Images and sounds are files,
which stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from eventctx.importers.source.items import Raw
from eventctx.importers.source.lines import (
    list_or_empty,
    object_or_empty,
    text_of_content,
    text_or_none,
)
from eventctx.importers.source.values import encode
from eventctx.queries.atif.verbatim import NAME

_SOURCES: Final = ("system", "user", "agent")
_SUMMARY: Final = "This session is being continued from a previous conversation"
"""The first words of Claude Code's summaries: Harbor writes a user's step, and no boundary."""

_FAILED: Final = ("is_error", "tool_result_is_error")


class StepMessages(NamedTuple):
    """The messages of a step: the first is the step's own, if it says anything."""

    own: dict[str, Any] | None
    results: list[tuple[dict[str, Any], bool]]
    """The results of its calls, and observations; and whether the tool failed."""


def is_step(row: Any) -> bool:
    """Whether an element of the list of steps is one."""
    return isinstance(row, dict) and row.get("source") in _SOURCES


def boundary_of(row: Any) -> str | None:
    """The effect of a system step on the context; None where it has none.

    Of older trajectories of Terminus 2 only the names of its subagents tell of a summary.
    """
    if not isinstance(row, dict) or row.get("source") != "system":
        return None
    managed = object_or_empty(object_or_empty(row.get("extra")).get("context_management"))
    if managed:
        return text_or_none(managed.get("boundary")) or "?"
    refs = [list_or_empty(one.get("subagent_trajectory_ref")) for one in results_of(row)]
    names = [str(object_or_empty(ref).get("session_id")) for some in refs for ref in some]
    return "replace" if any("-summarization-" in name for name in names) else None


def is_summary(row: Any) -> bool:
    """Whether a step is a summary that replaced the conversation, by its words alone."""
    told = is_step(row) and row["source"] == "user"
    return told and text_of_content(row.get("message")).startswith(_SUMMARY)


def results_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The results in a step's observation."""
    found = list_or_empty(object_or_empty(row.get("observation")).get("results"))
    return [one for one in found if isinstance(one, dict)]


def messages_of(row: dict[str, Any]) -> StepMessages:
    """The messages of a step."""
    content, thinking = _content_of(row.get("message")), row.get("reasoning_content")
    calls = [_call_of(one) for one in list_or_empty(row.get("tool_calls")) if _is_call(one)]
    if row["source"] != "agent":
        own = {"role": row["source"], "content": content} if content else None
        return StepMessages(own, _answers([], row))
    own = {"role": "assistant", "content": content if content or not calls else None}
    own |= {"reasoning_content": thinking} if isinstance(thinking, str) and thinking else {}
    own |= {"tool_calls": calls} if calls else {}
    ids = [call["id"] for call in calls]
    silent = not content and len(own) == 2 and row.get("llm_call_count") == 0
    return StepMessages(None if silent else own, _answers(ids, row))


def _content_of(content: Any) -> Any:
    """A content in OpenAI's form: images and sounds are files, named by their path."""
    if not isinstance(content, list):
        return content
    return [_part_of(part, object_or_empty(part).get("source")) for part in content]


def _part_of(part: Any, source: Any) -> Any:
    named = isinstance(source, dict) and isinstance(source.get("path"), str)
    if not named or part.get("type") not in ("image", "audio"):
        return part
    kind = "input_audio" if part.get("type") == "audio" else "image_url"
    return {"type": kind, kind: {**source, "url": source["path"]}}


def _is_call(call: Any) -> bool:
    told = object_or_empty(call)
    return isinstance(told.get("tool_call_id"), str) and isinstance(told.get("function_name"), str)


def _call_of(call: dict[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments")
    written = arguments if isinstance(arguments, str) else encode(arguments).decode()
    function = {"name": call["function_name"], "arguments": written}
    return {"id": call["tool_call_id"], "type": "function", "function": function}


def _answers(calls: list[str], row: dict[str, Any]) -> list[tuple[dict[str, Any], bool]]:
    """A message for each result that has a content."""
    results = [one for one in results_of(row) if one.get("content") is not None]
    named = [text_or_none(one.get("source_call_id")) for one in results]
    unanswered = [one for one in calls if one not in named]
    unnamed = named.count(None)
    found = []
    for one, call in zip(results, named, strict=True):
        message: dict[str, Any] = {"role": "tool"}
        if call is not None:
            message["tool_call_id"] = call
        elif len(unanswered) > 1 and unnamed == 1:
            message["tool_call_ids"] = unanswered
        elif unanswered:
            message["tool_call_id"] = unanswered.pop(0)
        else:
            message["role"] = "user"
        extra = object_or_empty(one.get("extra"))
        failed = any(held.get(key) is True for held in (one, extra) for key in _FAILED)
        found.append(({**message, "content": _content_of(one["content"])}, failed))
    return found


def links_of(row: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    """The references to subagents in a step's results, each with the call that it answers."""
    for one in results_of(row):
        call = text_or_none(one.get("source_call_id"))
        for ref in map(object_or_empty, list_or_empty(one.get("subagent_trajectory_ref"))):
            yield ref, call


def rest_of(line: int, row: Any) -> Raw:
    """A step without what is in its messages. Its program may still add results to it."""
    if not is_step(row):
        return Raw(line, "step", encode(row), understood=False)
    rest = dict(row)
    if "message" in row and not isinstance(row["message"], bool | int | float):
        rest["message"] = None
    if isinstance(row.get("reasoning_content"), str):
        rest["reasoning_content"] = None
    calls, results = row.get("tool_calls"), object_or_empty(row.get("observation")).get("results")
    if isinstance(calls, list):
        rest["tool_calls"] = [{**one, "arguments": None} if _is_call(one) else one for one in calls]
    if isinstance(results, list):
        left = [{**one, "content": None} if isinstance(one, dict) else one for one in results]
        rest["observation"] = {**row["observation"], "results": left}
    if own := object_or_empty(object_or_empty(row.get("extra")).get(NAME)):
        rest["extra"] = {**row["extra"], NAME: {**own, "messages": None}}
    return Raw(line, "step.envelope", encode(rest), volatile=True)
