"""What is often asked of the parts of a message."""

from __future__ import annotations

from typing import Any

from eventctx.messages.parts import Part, read_parts


def words_of(message: dict[str, Any]) -> str:
    """What somebody wrote, text by text on lines of its own; of an answer also its refusal."""
    return "\n".join(
        [part.value for part in read_parts(message) if part.kind in ("text", "refusal")]
    )


def call_names(message: dict[str, Any]) -> dict[str, str]:
    """Names of the tools that a message calls, by call id; for activity events, not for views."""
    calls = [part for part in read_parts(message) if part.kind == "call" and part.name]
    return {part.ids[0]: part.name for part in reversed(calls) if part.name}


def failed_results(message: dict[str, Any]) -> set[str]:
    """Ids of the results in a message that the tool marked as errors."""
    return {one for part in read_parts(message) if part.failed for one in part.ids}


def hosted_arguments(part: Part) -> Any:
    """What a hosted call was asked for; all that it holds, where it also holds what came of it."""
    block: dict[str, Any] = part.value
    given = [key for key in ("arguments", "input", "action") if key in block]
    if len(given) == 1 and "output" not in block:
        return block[given[0]]
    return {key: value for key, value in block.items() if key not in ("type", "id", "name")}
