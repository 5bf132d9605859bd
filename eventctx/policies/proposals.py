"""From the rows that a policy wants to keep to a proposal that keeps the rules.

A policy chooses the messages that matter. The functions here add what the rules demand: system
messages, pins, the latest human message, the message to be answered and the thinking of an open
tool loop stay, and a tool round stays whole if one of its rows stays. What a person said stays,
too, up to a quarter of the budget (``persons_words``): ``fit`` puts back what a policy drops of it,
and shortens it last. ``keep_only`` and ``drop`` are for authors of policies of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from eventctx.errors import InvalidPlan
from eventctx.log.plan import Disposition
from eventctx.messages.facts import Facts
from eventctx.messages.shorten import words_left
from eventctx.messages.tokens import Estimator
from eventctx.policies.policy import PERSONS_SHARE, Budget, Proposal, Visible

Decisions = dict[int, tuple[Disposition, str]]
"""A disposition and a reason code by message number."""


# -- a person's words ----------------------------------------------------------------------------

_STAYS = ("kept", "shortened")

BEGINNING: Final = 250
"""Characters that stay of a person's text, with its demands, where it cannot stay whole."""


class PersonsWords(NamedTuple):
    """Rows with a person's words that are the last to leave a view, in order, each with its reason.

    ``short`` are those of them that may be shortened to their beginning and demands. ``pairs`` are
    the other rows that a model answered without tools, each with its answer's: those go together.
    """

    rows: Mapping[int, str]
    short: frozenset[int] = frozenset()
    pairs: Mapping[int, int] = {}

    @property
    def whole(self) -> frozenset[int]:
        """The rows that keep all their words."""
        return frozenset(self.rows) - self.short


NO_WORDS: Final = PersonsWords({})


def persons_words(visible: Visible, budget: Budget) -> PersonsWords:
    """All that people said, as far as it takes at most ``budget.words`` tokens.

    Where it takes more, there is room by rank: for the latest message, then for demands, then for
    the rest, the newest first of each. A text that does not fit whole may fit shortened; what does
    not fit at all is an older message like any other. In a chat, where words are much of
    everything, there is no such room for a question without demands: it goes with its answer. The
    task always stays, and leaves at least half of the room to the others.
    """
    said, latest = visible.said, visible.latest_human
    costs = {row: _tokens_said(visible.facts[row], visible.estimator) for row in said}
    whole = {row for row, reason in said.items() if reason == "task" or row == latest}
    short: set[int] = set()
    most = budget.words or budget.tokens // PERSONS_SHARE
    room = most - sum([min(costs[row], most // 2) for row in whole])
    rest = [row for row in said if row not in whole]
    pairs: dict[int, int] = {}
    if sum([costs[row] for row in rest]) > room:
        pairs = {row: at for row, at in visible.answered.items() if said.get(row) == "said"}
        rest = [row for row in rest if row not in pairs]
    rest.sort(key=lambda row: (said[row] == "demand", row), reverse=True)
    for row in rest:
        cost, fitting = costs[row], whole
        if cost > room:
            cost = _tokens_said(visible.facts[row], visible.estimator, BEGINNING)
            fitting = short
        if cost <= room:
            room -= cost
            fitting.add(row)
    rows = {row: reason for row, reason in said.items() if row in whole or row in short}
    pairs = {row: at for row, at in pairs.items() if row not in rows}
    return PersonsWords(rows, frozenset(short), pairs)


def _tokens_said(facts: Facts, estimator: Estimator, characters: int | None = None) -> int:
    """The tokens of a message's words alone, shortened to so many characters and its demands."""
    prose = facts.prose if characters is None else words_left(facts, characters)
    return estimator.tokens_with(facts, prose, 0, 0) - estimator.tokens_of_media(facts)


def keep_only(visible: Visible, numbers: Iterable[int], reason: str = "custom") -> Proposal:
    """Keep these messages and those that the rules protect; everything else leaves the view.

    ``reason`` is recorded for the messages that were named and for those that leave; insertions
    stay. Raises InvalidPlan for a number that is not in view.
    """
    rows = _rows_of(visible, numbers)
    decided = decisions(visible, dict.fromkeys(rows, reason), gone=reason)
    return Proposal(decided, kept_insertions=tuple(visible.insertions))


def drop(visible: Visible, numbers: Iterable[int], reason: str = "custom") -> Proposal:
    """Take these messages out of the view, each with its whole round, as far as the rules allow.

    ``reason`` is recorded for what leaves; insertions stay. Raises InvalidPlan for a number that is
    not in view.
    """
    leaving = visible.groups_with(_rows_of(visible, numbers))
    wanted = dict.fromkeys(
        [row for row, place in enumerate(visible.group_at) if place not in leaving], "fits"
    )
    return Proposal(
        decisions(visible, wanted, gone=reason), kept_insertions=tuple(visible.insertions)
    )


def decisions(
    visible: Visible,
    wanted: Mapping[int, str],
    gone: str = "older",
    words: PersonsWords = NO_WORDS,
) -> Decisions:
    """The disposition and reason of every message when the rows ``wanted`` and ``words`` stay.

    ``wanted`` maps a row to its reason code; ``gone`` is the reason code of messages that leave.
    """
    messages = visible.messages
    human, last, pinned = visible.latest_human, visible.to_answer, visible.pinned
    staying = {*wanted, *words.rows, *pinned, *visible.loop_thinking}
    staying.update([row for row in (human, last) if row is not None])
    left_out: tuple[Disposition, str] = ("dropped", gone)
    decided: Decisions = {}
    here = visible.groups_with(staying)
    for place, group in enumerate(visible.groups):
        stays = place in here
        for row in group.rows:
            ref = messages[row]
            if ref.facts.kind == "system":
                decided[ref.number] = ("kept", "system")
            elif not stays:
                decided[ref.number] = left_out
            else:
                reason = wanted.get(row) or words.rows.get(row, "same_round")
                reason = "latest" if row == last else reason
                reason = "latest_human" if row == human else reason
                reason = "pinned" if row in pinned else reason
                decided[ref.number] = ("shortened" if ref.shortened else "kept", reason)
    return decided


def _rows_of(visible: Visible, numbers: Iterable[int]) -> list[int]:
    rows = visible.row_of
    wanted = set(numbers)
    unknown = wanted - rows.keys()
    if unknown:
        raise InvalidPlan(
            "a policy speaks of messages in view", tuple(sorted(unknown)), "they are not in view"
        )
    return [rows[number] for number in wanted]


def put_back_words(visible: Visible, proposal: Proposal, words: PersonsWords) -> Proposal:
    """The proposal with all of ``words`` that it leaves out put back, each in its whole round."""
    decided = proposal.dispositions
    missing = missing_words(visible, proposal, words)
    if not missing:
        return proposal
    corrected: dict[int, tuple[Disposition, str]] = dict(decided)
    last_open: int | None = None
    for place in sorted(visible.groups_with(missing)):
        group = visible.groups[place]
        for row in group.rows:
            ref = visible.messages[row]
            is_short = ref.shortened or ref.number in proposal.limits
            reason = words.rows.get(row, "same_round")
            corrected[ref.number] = ("shortened" if is_short else "kept", reason)
        last_open = group.rows[0] if group.pending else last_open
    insertions = proposal.insertions
    if last_open is not None:
        # Nothing can be inserted after a round that waits for results: such texts go to the start.
        behind = {ref.number for ref in visible.messages[last_open + 1 :]}
        insertions = tuple(
            [
                msgspec.structs.replace(one, before=None) if one.before in behind else one
                for one in insertions
            ]
        )
    return msgspec.structs.replace(proposal, dispositions=corrected, insertions=insertions)


def missing_words(visible: Visible, proposal: Proposal, words: PersonsWords) -> set[int]:
    """The rows of ``words`` that leave the view."""
    messages, decided = visible.messages, proposal.dispositions
    return {row for row in words.rows if decided[messages[row].number][0] not in _STAYS}
