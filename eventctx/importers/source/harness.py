"""Telling a person's words from what a harness writes in the user's role."""

from __future__ import annotations

from typing import Any, Final

from eventctx.messages.facts_reader import HARNESS_PREFIXES

INTERRUPTED: Final = "[Request interrupted by user"

# Tuples: a file may have anything for a "type", also what cannot be hashed.
_TEXTS: Final = ("text", "input_text")
_IMAGES: Final = ("image", "image_url", "input_image")
_RESULTS: Final = ("tool_result",)


def first_text(content: object) -> str | None:
    """The first text of a message's content that is more than white space."""
    if isinstance(content, str):
        return content if content.strip() else None
    for block in content if isinstance(content, list) else ():
        text = block if isinstance(block, str) else None
        if isinstance(block, dict) and block.get("type") in _TEXTS:
            text = block.get("text")
        if isinstance(text, str) and text.strip():
            return text
    return None


def by_person(message: dict[str, Any]) -> bool:
    """Whether a message in the user's role holds a person's words (or an image, or a file).

    A row of tool results that ends in a person's words counts.
    """
    content = message.get("content")
    text = first_text(content)
    if text is not None:
        return not text.lstrip().startswith(HARNESS_PREFIXES)
    blocks = content if isinstance(content, list) else ()
    return any(isinstance(b, dict) and b.get("type") in _IMAGES for b in blocks)


def holds_results(content: object) -> bool:
    """Whether there is a tool result among the blocks."""
    blocks = content if isinstance(content, list) else ()
    return any(isinstance(b, dict) and b.get("type") in _RESULTS for b in blocks)


def interrupts(message: dict[str, Any]) -> bool:
    """Whether a message says that the person stopped the model."""
    text = first_text(message.get("content"))
    return text is not None and text.startswith(INTERRUPTED)


def failed_results(message: dict[str, Any]) -> set[str]:
    """Ids of the results in a message that the tool marked as errors."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    return {
        str(block.get("tool_use_id"))
        for block in blocks
        if isinstance(block, dict) and block.get("is_error") is True
    }
