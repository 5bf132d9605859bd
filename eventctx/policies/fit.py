"""The last stage of every policy: make a proposal fit the budget, cheapest loss first.

Invariant: the fitted view counts at most ``budget.tokens``, or it is the floor and
``Fitted.overflow`` names its parts. So a request is never too large for a reason that a policy
could have avoided, and a policy need not reach the budget by itself.

The words of a person go last: the task, the latest message and every demand (``spoken_rows``).
Such a row that the proposal leaves out is put back first, with its whole round. Then:

1. Results that take more than their share of the budget are shortened.
2. Old results are shortened, then old arguments, until the view is down to the target.
3. The oldest rounds and messages are dropped. Those with demands are shortened instead, to their
   beginning and the demands. The task keeps its words.
4. The oldest insertions that quote no demands are dropped.
5. The round in progress is shortened in steps, to a thousand characters a message.
6. Of older messages with demands only the demands are left, of results and arguments in the rounds
   that stay nothing.
7. The round in progress is shortened to nothing.
8. The words of the task are shortened in steps; its demands stay.
9. Insertions that quote demands are dropped, oldest first.
10. Messages with demands are dropped, oldest first, at last the task.

Two lines matter. Steps 2 to 5 are taken only where the view is above four fifths of the threshold
(``line_to_drop_to``), and go on until it is below: the next requests need room. Steps 6 to 10 cost
what a person said, or what the model waits for, so only the budget forces them; a long task alone
blanks no running loop. Once they are forced, 8 and 10 go down to that line, too, or the next
request would force them again.

System messages, pins, the words of the latest human message and the message to be answered are
never touched, and a tool round is dropped as a whole or not at all. The smallest view that this
allows is the floor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from eventctx.messages.shorten import Limit
from eventctx.messages.tool_rounds import Group
from eventctx.policies.policy import Budget, Proposal, Visible
from eventctx.policies.proposals import all_insertions, put_back_spoken, spoken_rows
from eventctx.policies.working_set import WorkingSet
from eventctx.projections.view.refs import InsertionRef

OLD_CHARACTERS: Final = 1_000
"""Characters that are kept of an old result or of old arguments when room is needed."""

OPEN_CHARACTERS: Final = (16_000, 4_000, 1_000, 250, 0)
"""Characters that are kept of results, then of arguments, of the round in progress, by step."""

BESIDE_DEMANDS: Final = 250
"""Characters that are kept with the demands in a message that would be dropped without them."""


class Fitted(NamedTuple):
    """A reduced proposal, its estimated tokens, and the parts of a floor that does not fit.

    ``overflow`` maps the name of a part to its tokens. It is empty unless ``tokens`` is more than
    the budget and nothing is left to reduce.
    """

    proposal: Proposal
    tokens: int
    overflow: dict[str, int]


def fit(visible: Visible, proposal: Proposal, budget: Budget) -> Fitted:
    """Reduce ``proposal`` until it fits ``budget``. Pure; reads facts, never texts."""
    spoken = spoken_rows(visible, all_insertions(proposal))
    proposal = put_back_spoken(visible, proposal, spoken)
    kept: tuple[InsertionRef, ...] = proposal.kept_insertions
    working_set = WorkingSet(visible, proposal)
    protected, open_round = visible.protected, visible.open_round
    with_results = visible.shortenable
    working_set.shorten_oversize(with_results, budget.tokens)
    drop_line = line_to_drop_to(budget)
    whole = protected | open_round
    untouched = protected.difference(with_results)
    if working_set.total > drop_line:
        # The policy left too much. Aim for the target, so that the next request has room.
        _shorten_old(working_set, whole, budget.target)
    staying, asked_for = _drop_old(working_set, whole, spoken, drop_line)
    kept = _drop_insertions(working_set, kept, drop_line)
    in_progress = [row for row in sorted(open_round) if row not in untouched]
    _shorten_in_steps(working_set, in_progress, OPEN_CHARACTERS[:3], drop_line, budget)
    if working_set.total > budget.tokens:
        with_words = protected | {row for row, reason in spoken.items() if reason == "task"}
        closed = [row for group in staying for row in group.rows if row not in open_round]
        rows = [row for row in closed if row not in untouched]
        _shorten_rows(working_set, rows, with_words, 0, budget.tokens)
        _shorten_in_steps(working_set, in_progress, OPEN_CHARACTERS[3:], drop_line, budget)
    if working_set.total > budget.tokens:
        words = {row: reason for row, reason in spoken.items() if row not in protected}
        _shorten_words(working_set, words, drop_line, budget)
    if working_set.total > budget.tokens and kept:
        # A row that this insertion quoted counts again, so the decision is made anew.
        return fit(visible, msgspec.structs.replace(proposal, kept_insertions=kept[1:]), budget)
    if working_set.total > budget.tokens:
        # A stable sort: the round with the task goes last.
        for group in sorted(asked_for, key=lambda one: bool(_task_of(one, spoken))):
            if working_set.total <= drop_line:
                break
            working_set.drop(group, "budget")
    fitted = msgspec.structs.replace(
        proposal, dispositions=working_set.decided, limits=working_set.limits, kept_insertions=kept
    )
    overflow = {}
    if working_set.total > budget.tokens:
        overflow = _parts(working_set, visible, open_round)
    return Fitted(fitted, working_set.total, overflow)


def line_to_drop_to(budget: Budget) -> int:
    """The most tokens a compacted view may have, so that the next requests have room.

    That is the budget or four fifths of the threshold, whichever is less.
    """
    return min(budget.tokens, budget.threshold * 4 // 5)


def _shorten_old(working_set: WorkingSet, whole: frozenset[int], target: int) -> None:
    old = [row for row in range(len(working_set.messages)) if row not in whole]
    for limit in (Limit(outcome=OLD_CHARACTERS), Limit(arguments=OLD_CHARACTERS)):
        for row in old:
            if working_set.total <= target:
                return
            if working_set.stays(row):
                working_set.shorten(row, limit, "budget")


def _drop_old(
    working_set: WorkingSet, whole: frozenset[int], spoken: Mapping[int, str], drop_line: int
) -> tuple[list[Group], list[Group]]:
    """Drop the oldest rounds, and shorten those in which a person asked for something.

    Returns the rounds that stay, and those of them that may go last.
    """
    staying: list[Group] = []
    asked_for: list[Group] = []
    for group in working_set.groups:
        if working_set.total <= drop_line:
            break  # nothing that stays has to be shortened
        if not spoken.keys().isdisjoint(group.rows) and whole.isdisjoint(group.rows):
            asked_for.append(group)
            staying.append(group)
            words = _task_of(group, spoken)
            _shorten_rows(working_set, group.rows, words, BESIDE_DEMANDS, drop_line)
        elif not whole.isdisjoint(group.rows):
            staying.append(group)
        else:
            working_set.drop(group, "budget")
    return staying, asked_for


def _shorten_rows(
    working_set: WorkingSet,
    rows: Sequence[int],
    words: Collection[int],
    characters: int,
    line: int,
) -> None:
    """Shorten rows until the view is down to ``line``; those of ``words`` keep their words."""
    for row in rows:
        if working_set.total <= line:
            return
        if working_set.stays(row):
            prose = None if row in words else characters
            working_set.shorten(row, Limit(characters, characters, prose), "budget")


def _drop_insertions(
    working_set: WorkingSet, kept: tuple[InsertionRef, ...], drop_line: int
) -> tuple[InsertionRef, ...]:
    """Summaries and notices stand for much in few tokens, so they go after the messages."""
    left = list(kept)
    for one in kept:
        if working_set.total > drop_line and not one.demands:
            working_set.total -= one.tokens
            left.remove(one)
    return tuple(left)


def _shorten_in_steps(
    working_set: WorkingSet,
    rows: Sequence[int],
    steps: Sequence[int],
    drop_line: int,
    budget: Budget,
) -> None:
    for characters in steps:
        for limit in (Limit(outcome=characters), Limit(arguments=characters)):
            for row in rows:
                if working_set.total <= drop_line:
                    return
                if working_set.stays(row):
                    working_set.shorten(row, limit, "budget")
        # A text below a thousand characters is of little use, so only the budget forces that.
        if characters <= OLD_CHARACTERS and working_set.total <= budget.tokens:
            return


def _shorten_words(
    working_set: WorkingSet, spoken: Mapping[int, str], drop_line: int, budget: Budget
) -> None:
    """Shorten words around demands in steps, the task's last. The demands stay."""
    rows = sorted(spoken, key=lambda row: (spoken[row] == "task", row))
    for row in rows:
        for characters in OPEN_CHARACTERS:
            if working_set.total <= drop_line:
                return
            if characters < OLD_CHARACTERS and working_set.total <= budget.tokens:
                return
            if working_set.stays(row):
                working_set.shorten(row, Limit(prose=characters), "budget")


def _task_of(group: Group, spoken: Mapping[int, str]) -> list[int]:
    return [row for row in group.rows if spoken.get(row) == "task"]


def _parts(working_set: WorkingSet, visible: Visible, open_round: frozenset[int]) -> dict[str, int]:
    parts = {"system messages": 0, "pins": 0, "latest human message": 0, "latest message": 0}
    parts["open round"] = 0
    for row, ref in enumerate(visible.messages):
        if not working_set.stays(row):
            continue
        if ref.facts.kind == "system":
            part = "system messages"
        elif ref.number in visible.pins:
            part = "pins"
        else:
            words = "latest human message" if ref.facts.human else "latest message"
            part = "open round" if row in open_round else words
        parts[part] += working_set.tokens_of[row]
    parts["notices and synthetic results"] = max(0, working_set.total - sum(parts.values()))
    return parts
