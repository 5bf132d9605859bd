"""Queries to the parts of a message: its words, its tool names, its failed results."""

from __future__ import annotations

from typing import Any

from eventctx.messages.parts import Part, read_parts


def words_of(message: dict[str, Any]) -> str:
    """The texts of a message, each on lines of its own, with a refusal of the model."""
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
    """The arguments of a hosted call; all of its values where it holds more, such as a result."""
    block: dict[str, Any] = part.value
    given = [key for key in ("arguments", "input", "action") if key in block]
    if len(given) == 1 and "output" not in block:
        return block[given[0]]
    return {key: value for key, value in block.items() if key not in ("type", "id", "name")}
