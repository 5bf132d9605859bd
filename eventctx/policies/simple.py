"""The simple policy: all system messages and the last ten of the conversation stay.

Its rules are those of the README of Amplifier's context-simple: tool pairs are atomic (a round
stays whole if one of its messages stays); messages without tools are de-duplicated by role and
first 100 characters. Of duplicates the last one stays, so that order and recency survive.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.policies.constraints import AtLeastOne, check
from eventctx.policies.policy import Budget, PolicyState, Proposal, Visible
from eventctx.policies.proposals import Decisions, decisions
from eventctx.policies.spoken_rows import spoken_rows
from eventctx.projections.view.refs import MessageRef


class Simple(msgspec.Struct, frozen=True):
    """Keep system messages and the ``keep_recent`` last messages of the conversation."""

    keep_recent: AtLeastOne = 10
    max_messages: AtLeastOne | None = None
    name: str = "simple"
    version: int = 2

    def __post_init__(self) -> None:
        check(self)
        check_counts(self.keep_recent, self.max_messages)

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        """Dispositions of every visible message; insertions stay as they are."""
        most = at_most(self.max_messages, state)
        kept = self.keep_recent if most is None else min(self.keep_recent, most)
        recent = visible.conversation[-kept:]
        decided = decisions(visible, dict.fromkeys(recent, "recent"))
        said = spoken_rows(visible, visible.insertions)
        asked = {visible.messages[row].number for row in said}
        _merge_duplicates(visible.messages, decided, visible.pins | asked)
        return Proposal(decided, kept_insertions=tuple(visible.insertions))


def check_counts(keep_recent: int, max_messages: int | None) -> None:
    """Raise InvalidSetting for a limit below what is to be kept."""
    if max_messages is not None and max_messages < keep_recent:
        raise InvalidSetting(
            f"max_messages: expected an int from keep_recent ({keep_recent}), found {max_messages}"
        )


def at_most(max_messages: int | None, state: PolicyState) -> int | None:
    """The most messages that may stay: half of ``max_messages``; None where it is no trigger."""
    if state.trigger != "max_messages" or max_messages is None:
        return None
    # Only half of the limit, because with more the next message would exceed it again.
    return max(1, max_messages // 2)


def _merge_duplicates(
    messages: Sequence[MessageRef], decided: Decisions, staying: frozenset[int]
) -> None:
    seen: set[bytes] = set()
    for ref in reversed(messages):
        facts = ref.facts
        stays = decided[ref.number][0] in ("kept", "shortened")
        with_tools = facts.calls or facts.results or facts.kind in ("result", "system")
        # Items of one Responses answer belong to a round even where they hold no call.
        if not stays or with_tools or facts.dialect == "responses" or ref.number in staying:
            continue
        if not facts.prose:
            continue
        if facts.mark in seen:
            decided[ref.number] = ("merged", "duplicate")
        seen.add(facts.mark)
