"""The distinction of a person's words from a harness's texts in the user's role."""

from __future__ import annotations

from typing import Any

from eventctx.errors import InvalidMessage
from eventctx.messages.facts import Facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.speaker import interrupts
from eventctx.messages.tool_results import observes

__all__ = ["by_person", "interrupts", "may_be_observation"]


def by_person(message: dict[str, Any], facts: Facts, before: Facts | None = None) -> bool:
    """Whether a message holds a person's words (or an image), by the rule that policies go by.

    ``facts`` are the message's. A row of tool results that ends in a person's words counts; an
    observation does not: it follows an action in the text of ``before``, the message before it.
    """
    if not facts.human or before is None or not before.action:
        return facts.human
    return not observes(message, before.action)


def may_be_observation(message: dict[str, Any]) -> bool:
    """Whether a program's message may be a result: a harness's own texts are told by their form.

    A message without a role is none.
    """
    try:
        return read_facts(message).human
    except InvalidMessage:
        return False
