"""opencode's messages as its requests have them: parts become blocks, tools calls and results.

Only what is sent becomes a message; ids, times, titles and snapshots stay in the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from eventctx.importers.source.lines import (
    list_or_empty,
    nanoseconds,
    object_or_empty,
    text_or_none,
    without,
)

KNOWN: Final = frozenset(
    (
        *("text", "reasoning", "file", "tool", "step-start", "step-finish", "snapshot", "patch"),
        *("agent", "subtask", "retry", "compaction"),
    )
)
"""Every known ``type`` of a part."""

CLEARED: Final = "[Old tool result content cleared]"
QUESTION: Final = "What did we do so far?"
_SUBTASK: Final = "The following tool was executed by the user"
_AS_TEXT: Final = frozenset(("text/plain", "application/x-directory"))
"""Files whose content is in a part with text."""


class AnswerStep(NamedTuple):
    """One call of a model in a message: its answer, the results, and how it ended.

    ``cleared`` are the calls whose results are sent no more, by the time of that.
    """

    blocks: list[Any]
    results: list[Any]
    finish: dict[str, Any]
    cleared: dict[str, int]


def steps_of(parts: list[dict[str, Any]]) -> Iterator[AnswerStep]:
    """The steps of an answer; old releases have several in one message."""
    step = AnswerStep([], [], {}, {})
    for part in parts:
        kind = part.get("type")
        if kind == "step-start" and (step.blocks or step.finish):
            yield step
            step = AnswerStep([], [], {}, {})
        elif kind == "step-finish":
            step = step._replace(finish=part)
        elif kind == "tool":
            _add_tool(step, part)
        elif kind == "text" and isinstance(part.get("text"), str) and part["text"]:
            step.blocks.append({"type": "text", "text": part["text"]})
        elif kind == "reasoning" and isinstance(part.get("text"), str):
            step.blocks.extend(_thinking(part))
    yield step


def _thinking(part: dict[str, Any]) -> list[Any]:
    about = object_or_empty(object_or_empty(part.get("metadata")).get("anthropic"))
    signature = text_or_none(about.get("signature"))
    sealed = text_or_none(about.get("redactedData"))
    if sealed is not None:
        return [{"type": "redacted_thinking", "data": sealed}]
    if not part["text"].strip() and signature is None:
        return []
    block = {"type": "thinking", "thinking": part["text"]}
    return [block if signature is None else {**block, "signature": signature}]


def _add_tool(step: AnswerStep, part: dict[str, Any]) -> None:
    state = object_or_empty(part.get("state"))
    call_id = text_or_none(part.get("callID")) or text_or_none(part.get("id")) or "unknown"
    name = text_or_none(part.get("tool")) or ""
    call = {"type": "tool_use", "id": call_id, "name": name, "input": state.get("input") or {}}
    step.blocks.append(call)
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
    metadata = object_or_empty(state.get("metadata"))
    if state.get("status") == "completed":
        block["content"] = _outcome(state)
        compacted = object_or_empty(state.get("time")).get("compacted")
        if (time := milliseconds(compacted)) is not None:
            step.cleared[call_id] = time
    elif state.get("status") == "error":
        output = metadata.get("output") if metadata.get("interrupted") is True else None
        told = output if isinstance(output, str) else state.get("error")
        block |= {"content": told if isinstance(told, str) else "", "is_error": True}
    else:
        return  # it runs, or a crash ended it
    step.results.append(block)


def _outcome(state: dict[str, Any]) -> Any:
    """The content of a result, with the images and documents that are attached to it."""
    output = state.get("output")
    words = output if isinstance(output, str) else ""
    files = [file for one in list_or_empty(state.get("attachments")) for file in _file(one)]
    return [{"type": "text", "text": words}, *files] if files else words


def cleared(results: list[Any], calls: set[str]) -> list[Any]:
    """Results as they are sent after those of some calls were cleared."""
    return [{**one, "content": CLEARED} if one["tool_use_id"] in calls else one for one in results]


def told(parts: list[dict[str, Any]]) -> tuple[list[Any], bool]:
    """The blocks of a message in the user's role, and whether a person wrote one of them."""
    blocks: list[Any] = []
    person = False
    for part in parts:
        kind = part.get("type")
        said = kind == "text" and isinstance(part.get("text"), str) and part["text"]
        if said and part.get("ignored") is not True:
            blocks.append({"type": "text", "text": part["text"]})
            person = person or part.get("synthetic") is not True
        elif kind == "file":
            found = _file(part)
            blocks += found
            person = person or bool(found)
        elif kind == "compaction":
            blocks.append({"type": "text", "text": QUESTION})
        elif kind == "subtask":
            blocks.append({"type": "text", "text": _SUBTASK})
    return blocks, person


def _file(part: object) -> list[Any]:
    about = object_or_empty(part)
    mime, url = text_or_none(about.get("mime")) or "", text_or_none(about.get("url"))
    if mime in _AS_TEXT or url is None:
        return []
    kind = "image" if mime.startswith("image/") else "document"
    head, comma, data = url.partition(",")
    if url.startswith("data:") and comma and head.endswith(";base64"):
        return [{"type": kind, "source": {"type": "base64", "media_type": mime, "data": data}}]
    return [{"type": kind, "source": {"type": "url", "url": url}}]


def rest_of(part: Any) -> Any:
    """A part without what becomes a block."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("text", "reasoning") and isinstance(part.get("text"), str):
        return part if part.get("ignored") is True else without(part, "text")
    if kind == "file" and _file(part):
        return without(part, "url")
    state = part.get("state") if kind == "tool" else None
    if not isinstance(state, dict):
        return part
    taken = ["input"] if isinstance(state.get("input"), dict) else []
    if state.get("status") == "completed" and isinstance(state.get("output"), str):
        taken.append("output")
    return {**part, "state": without(state, *taken)}


def is_running(parts: list[dict[str, Any]]) -> bool:
    """Whether a tool of an answer has not ended yet."""
    states = [object_or_empty(one.get("state")) for one in parts if one.get("type") == "tool"]
    return any(state.get("status") in ("pending", "running") for state in states)


def milliseconds(time: object) -> int | None:
    """UTC nanoseconds of one of opencode's times."""
    if isinstance(time, bool) or not isinstance(time, int | float):
        return None
    return nanoseconds(time / 1000)
