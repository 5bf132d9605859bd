"""The distinction of a person's words from a harness's texts in the user's role."""

from __future__ import annotations

from typing import Any, Final

from eventctx.messages.facts_reader import HARNESS_PREFIXES
from eventctx.messages.parts import read_parts

_INTERRUPTED: Final = "[Request interrupted by user"


def by_person(message: dict[str, Any]) -> bool:
    """Whether a message in the user's role holds a person's words (or an image).

    A row of tool results that ends in a person's words counts.
    """
    text = _first_text(message)
    if text is not None:
        return not text.lstrip().startswith(HARNESS_PREFIXES)
    return any(part.kind == "image" for part in read_parts(message))


def interrupts(message: dict[str, Any]) -> bool:
    """Whether a message reports that the person stopped the model."""
    text = _first_text(message)
    return text is not None and text.startswith(_INTERRUPTED)


def _first_text(message: dict[str, Any]) -> str | None:
    """The first text of a message that is more than white space."""
    texts = [part.value for part in read_parts(message) if part.kind == "text"]
    return next((text for text in texts if text and not text.isspace()), None)
