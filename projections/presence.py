"""The words for how much of a message a view shows, and for why.

Every answer, document and screen reads them here. A reason code names a step of a policy, and a
step may take messages of several kinds: ``old_round`` is recorded for every row without a person's
words, in a tool round or not. So a reason's sentence is made of the code and the message's facts.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from eventctx.log.events import LossCause
from eventctx.log.naming import ranges_name
from eventctx.log.plan import INFERRED, PROVIDER, TAKEN_BACK

if TYPE_CHECKING:
    from eventctx.messages.facts import Facts
    from eventctx.projections.silent_loss import SuspectedLoss


class Presence(StrEnum):
    """How much of a message, or of something in it, is in a view; the values are those of JSON.

    ``why`` answers for a message: a view shows it ``WHOLE`` or ``SHORTENED``, or one of the other
    values says why it does not. ``lost`` answers for an item of messages: it is ``GONE`` where
    neither a message nor a ``SUMMARY`` in view has it.
    """

    WHOLE = "whole"
    """As it was added."""
    SHORTENED = "shortened"
    """A shorter copy, with the item in it."""
    SUMMARY = "summary"
    """In no message in view, but a summary in view mentions it."""
    GONE = "gone"
    """In no message and no summary in view."""

    SUMMARISED = "summarised"
    DROPPED = "dropped"
    MERGED = "merged"
    OMITTED = "omitted"
    """A result that answers no call in view."""
    REPLACED = "replaced"
    """A system message whose place the host's own prompt takes."""
    SET = "set"
    CLEARED = "cleared"
    NOT_ADDED = "not_added"
    """It was added later."""

    # A list of presences prints as the list of strings that it is in JSON.
    __repr__ = str.__repr__

    @property
    def in_view(self) -> bool:
        """Whether the view has the message, whole or shortened."""
        return self in (Presence.WHOLE, Presence.SHORTENED)

    @property
    def restorable(self) -> bool:
        """Whether a compaction took it or a part of it, so that ``restore`` brings it back."""
        return self in _RESTORABLE

    @property
    def short(self) -> str:
        """One or two words, such as ``in the summary``."""
        return _WORDS[self].short

    @property
    def sentence(self) -> str:
        """Whether it is in view, and what took it out."""
        return _WORDS[self].sentence


_RESTORABLE: Final = (Presence.SUMMARISED, Presence.DROPPED, Presence.MERGED, Presence.SHORTENED)


class _PresenceWords(NamedTuple):
    short: str
    sentence: str


_WORDS: Final = {
    Presence.WHOLE: _PresenceWords("whole", "in view, whole"),
    Presence.SHORTENED: _PresenceWords("shortened", "in view, shortened"),
    Presence.SUMMARY: _PresenceWords("in the summary", "not in view: a summary mentions it"),
    Presence.GONE: _PresenceWords("gone", "not in view"),
    Presence.SUMMARISED: _PresenceWords("summarised", "not in view: summarised by a compaction"),
    Presence.DROPPED: _PresenceWords("dropped", "not in view: dropped by a compaction"),
    Presence.MERGED: _PresenceWords(
        "merged", "not in view: merged by a compaction with a message that says the same"
    ),
    Presence.OMITTED: _PresenceWords(
        "omitted", "not in view: a tool result that answers no call in view"
    ),
    Presence.REPLACED: _PresenceWords(
        "replaced", "not in view: the host's own system prompt takes its place"
    ),
    Presence.SET: _PresenceWords("set", "not in view: a set took it out of the transcript"),
    Presence.CLEARED: _PresenceWords("cleared", "not in view: the transcript was cleared"),
    Presence.NOT_ADDED: _PresenceWords("not added", "not in view: it was added only later"),
}


class TriggerWords(NamedTuple):
    """A compaction's trigger as a heading, and as a clause after "the compaction:"."""

    short: str
    clause: str


TRIGGERS: Final = {
    "threshold": TriggerWords("threshold reached", "the threshold was reached"),
    "budget": TriggerWords("over budget", "the budget was exceeded"),
    "max_messages": TriggerWords("too many messages", "there were too many messages"),
    "manual": TriggerWords("on demand", "made on demand"),
    "imported": TriggerWords("by the imported program", "made by the imported program"),
    "provider": TriggerWords("by the provider", "made by the provider"),
}
"""Why a compaction began, by the trigger in its record."""

REASONS: dict[str, str] = {
    "system": "system and developer messages always stay",
    "pinned": "pinned",
    "latest_human": "the latest human message always stays",
    "latest": "the message that is to be answered always stays",
    "recent": "among the most recent messages that the policy keeps",
    "same_round": "belongs to a tool round of which another message stays",
    "open_round": "belongs to the tool round in progress, or holds the thinking of its loop",
    "older": "older than the most recent messages that the policy keeps",
    "duplicate": "same role and first 100 characters as a later message",
    "oversize": "larger than its share of the budget",
    "budget": "to fit the budget",
    "old_result": "an old tool result, shortened to reach the target",
    "old_arguments": "old tool arguments, shortened to reach the target",
    "old_round": "an old tool round or message, dropped to reach the target",
    "old_words": "an old user message, with its round, cut or dropped to reach the target",
    "protected": "among the messages or results that the policy protects",
    "task": "the first human message, which says what it is all about",
    "demand": "a person asks for or forbids something in it",
    "said": "a person said it, and a quarter of the budget has room for it",
    "least_needed": "the policy ranked it lower than what it kept",
    "fits": "room was left for it",
    "important": "scored high enough to stay",
    "unimportant": "scored too low to stay",
    "custom": "so decided by a custom policy",
    "summary": "a summary stands for it",
    "restored": "brought back on request",
    PROVIDER: "summarised by the provider",
    "provider_summary": "holds the provider's own summary of all that came before",
    "provider_kept": "a person said it, and it stays before the provider's summary",
    "foreign_summary": "holds a provider's summary, which the model that is asked cannot read",
    "imported": "the imported file says so",
    INFERRED: "inferred: the provider counted what it cleared, the oldest first, and named none",
    TAKEN_BACK: "taken back: a person went back, or the program withdrew it",
}
"""Every reason code that a plan of this release may hold, with its text for a reader."""


PROVIDER_EDITS: Final = {
    "clear_thinking": "the thinking of the oldest turns",
    "clear_tool_uses": "the oldest results",
}
"""What a provider cleared, by the strategy of the compaction that says so: it counts, and the
oldest are inferred."""


def describe_trigger(trigger: str) -> TriggerWords:
    """The words for a trigger; the trigger itself, if this release does not know it."""
    return TRIGGERS.get(trigger) or TriggerWords(trigger, trigger)


def describe_reason(reason: str, *facts: Facts) -> str:
    """The meaning of a code, true of all messages with these ``facts``.

    Without facts, and for messages of several kinds, the sentence names no kind. Empty for a code
    that this release does not know.
    """
    if len(facts) == 1:
        return _of_one(reason, facts[0])
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


CAUSES: Final[dict[LossCause, str]] = {
    "model": "another model read it",
    "tools": "other tool definitions were sent",
    "edited": "something before the end was taken out, by the program or the server",
    "resumed": "the session was resumed with less",
    "expired": "the cache expired in the pause",
    "unknown": "for a reason that the counts do not show",
}


def describe_loss(loss: SuspectedLoss, request: str) -> str:
    """A sentence about a suspected loss; ``request`` is its request's name, such as ``2.3``."""
    if loss.kind == "cache":
        return (
            f"{request}: the cache served {loss.found:,} tokens, and {loss.expected:,} for the "
            f"request before; likely (inferred) {CAUSES[loss.cause]}."
        )
    dropped = f"; probably dropped: {ranges_name(loss.messages)}" if loss.messages else ""
    return (
        f"{request}: the provider counted ~{loss.tokens:,} tokens fewer than the log says were "
        f"sent, and no record says why; likely (inferred) {CAUSES[loss.cause]}{dropped}."
    )
