"""Rules that every proposal must keep, whoever made it (DESIGN §6)."""

from __future__ import annotations

from collections.abc import Set

from eventctx.errors import InvalidPlan
from eventctx.policies.policy import Proposal, Visible
from eventctx.rounds import group_rows


def check(visible: Visible, proposal: Proposal) -> None:
    """Raise InvalidPlan, naming the rule and the messages, if ``proposal`` breaks a rule."""
    messages = visible.messages
    numbers = {ref.number for ref in messages}
    missing = numbers - proposal.dispositions.keys()
    if missing:
        raise _broken("every message has a disposition", missing, "they have none")
    staying = {
        number
        for number, (disposition, _) in proposal.dispositions.items()
        if disposition in ("kept", "shortened")
    }
    system = {ref.number for ref in messages if ref.facts.kind == "system"}
    if system - staying:
        raise _broken("system messages stay", system - staying, "left out")
    pins = visible.pins & numbers
    if pins - staying:
        raise _broken("pinned messages stay", pins - staying, "left out")
    touched = (system | pins) & proposal.limits.keys()
    if touched:
        raise _broken("system messages and pins stay whole", touched, "shortened")
    human = next((ref.number for ref in reversed(messages) if ref.facts.human), None)
    if human is not None and human not in staying:
        raise _broken("the latest human message stays", {human}, "left out")
    _check_rounds(visible, staying)
    _check_texts(visible, proposal)


def _check_rounds(visible: Visible, staying: set[int]) -> None:
    for group in group_rows([ref.facts for ref in visible.messages]):
        numbers = {visible.messages[row].number for row in group.rows}
        here = numbers & staying
        if here and here != numbers:
            raise _broken("a tool round stands or falls as one", numbers, "only part of it stays")


def _check_texts(visible: Visible, proposal: Proposal) -> None:
    already = {ref.number for ref in visible.messages if ref.shortened}
    bare = {
        number
        for number, (disposition, _) in proposal.dispositions.items()
        if disposition == "shortened" and number not in proposal.limits and number not in already
    }
    if bare:
        raise _broken("a shortened message has a limit", bare, "no limit given")
    groups = group_rows([ref.facts for ref in visible.messages])
    # Behind the first row of an open round everything may still move.
    still = next((group.rows[0] for group in reversed(groups) if group.pending), None)
    starts = {
        visible.messages[group.rows[0]].number
        for group in groups
        if still is None or group.rows[0] <= still
    }
    places = {new.before for new in proposal.insertions if new.before is not None}
    if places - starts:
        raise _broken("nothing is inserted into a round", places - starts, "not a round's start")


def _broken(rule: str, numbers: Set[int], problem: str) -> InvalidPlan:
    return InvalidPlan(rule, tuple(sorted(numbers)), problem)
