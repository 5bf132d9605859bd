"""Reason codes in sentences that are true of the messages they are said of.

One code stands for a step of a policy, and a step may take messages of several kinds:
``old_round`` is recorded for every row without a person's words, in a tool round or not. So a
sentence is made of the code and the message's facts, and every screen asks here.
"""

from __future__ import annotations

from typing import Final

from eventctx.log.plan import REASONS
from eventctx.messages.facts import Facts

TRIGGERS: Final = {
    "threshold": "threshold reached",
    "budget": "over budget",
    "max_messages": "too many messages",
    "manual": "on demand",
    "imported": "by the imported program",
}
"""Why a compaction was begun, for a reader."""


def triggered(trigger: str) -> str:
    """The words for a trigger; itself, if this release does not know it."""
    return TRIGGERS.get(trigger, trigger)


def worded(reason: str, *facts: Facts) -> str:
    """The meaning of a code, true of all messages with these ``facts``.

    Without facts, and for messages of several kinds, the sentence names no kind. Empty for a code
    that this release does not know.
    """
    sentences = {_of_one(reason, one) for one in facts}
    return sentences.pop() if len(sentences) == 1 else REASONS.get(reason, "")


def _of_one(reason: str, facts: Facts) -> str:
    if reason == "old_round":
        return f"an old {_kind(facts)}, dropped to reach the target"
    if reason == "old_words":
        if facts.human:
            return "an old user message, cut or dropped to reach the target"
        return "beside a person's old words in one tool round, dropped to reach the target"
    if reason == "old_result" and not _of_tools(facts):
        return "an old result, shortened to reach the target"
    return REASONS.get(reason, "")


def _kind(facts: Facts) -> str:
    if _of_tools(facts):
        return "tool round"
    if facts.observation:
        return "observation of an action"
    if facts.kind == "assistant":
        return "message of the model"
    if facts.human:
        return "user message"
    if facts.kind == "user":
        return "message of role user that is no person's"
    return "message"


def _of_tools(facts: Facts) -> bool:
    return bool(facts.calls or facts.results)
