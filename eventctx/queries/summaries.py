"""The texts of summaries, as far as they can be read."""

from __future__ import annotations

from typing import Any

from eventctx.messages.parts import SEALED, read_parts
from eventctx.messages.recall_text import text_of


def text_of_summary(message: dict[str, Any]) -> str:
    """The text of a summary; also that which a provider's own compaction lets be read."""
    opened = _thinking(message, sealed=False) if message.get("type") == "compaction" else []
    return "\n".join([text_of(message), *opened])


def is_sealed(message: dict[str, Any]) -> bool:
    """Whether a summary is encrypted, so that nothing can be found in it."""
    return any(_thinking(message, sealed=True))


def _thinking(message: dict[str, Any], *, sealed: bool) -> list[str]:
    return [
        part.value
        for part in read_parts(message)
        if part.kind == "thinking" and (part.type in SEALED) == sealed and part.value
    ]
