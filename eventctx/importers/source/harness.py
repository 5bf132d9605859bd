"""The distinction of a person's words from a harness's texts in the user's role."""

from __future__ import annotations

from typing import Any

from eventctx.messages.facts_reader import read_facts
from eventctx.messages.speaker import interrupts

__all__ = ["by_person", "interrupts"]


def by_person(message: dict[str, Any]) -> bool:
    """Whether a message holds a person's words (or an image), by the rule that policies go by.

    A row of tool results that ends in a person's words counts. Raises InvalidMessage for a message
    without a role.
    """
    return read_facts(message).human
