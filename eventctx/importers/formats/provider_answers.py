"""A provider's answer as its API returns it: a completion, a message, or a list of items.

The forms are those of OpenAI's chat completions (``choices``), of Anthropic's messages
(``content``) and of the Responses API (``output``).
"""

from __future__ import annotations

from typing import Any, Final

from eventctx.importers.source.lines import (
    facts_or_none,
    item_facts_or_none,
    list_or_empty,
    object_or_empty,
    text_or_none,
)

_INSIDE: Final = ("response", "body")


def answer_body(value: object) -> dict[str, Any]:
    """The answer itself, from a log that may wrap it; an empty object where there is none."""
    found = object_or_empty(value)
    for key in _INSIDE:
        if "choices" not in found and not answers(found) and isinstance(found.get(key), dict):
            found = found[key]
    return found


def answers(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages or items of an answer, in order; none where the body holds no answer."""
    message = first_choice(body).get("message")
    content = body.get("content")
    if isinstance(body.get("output"), list):
        # All items are the answer, also a compaction or what a hosted tool returned.
        return [one for one in body["output"] if item_facts_or_none(one) is not None]
    if isinstance(message, dict):
        found = [message]
    elif isinstance(content, str | list) and content:
        found = [{"role": "assistant", "content": content}]
    else:
        found = []
    return [one for one in found if _is_answer(one)]


def first_choice(body: dict[str, Any]) -> dict[str, Any]:
    """The first choice of a completion; an empty object if there is none."""
    return object_or_empty(next(iter(list_or_empty(body.get("choices"))), None))


def finish_of(body: dict[str, Any]) -> str | None:
    """Why the answer ended, in the provider's word; the Responses API has a status."""
    reasons = (
        first_choice(body).get("finish_reason"),
        body.get("stop_reason"),
        body.get("finish_reason"),
        body.get("status") if isinstance(body.get("output"), list) else None,
    )
    return next((reason for reason in reasons if text_or_none(reason)), None)


def _is_answer(value: object) -> bool:
    facts = facts_or_none(value)
    return facts is not None and facts.kind == "assistant"
