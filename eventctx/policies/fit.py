"""The last stage of every policy: make a proposal fit the budget, cheapest loss first.

Invariant: the fitted view counts at most ``budget.tokens``, or it is the floor and
``Fitted.overflow`` names its parts. So a request is never too large for a reason that a policy
could have avoided, and a policy need not reach the budget by itself.

What people said goes last (``proposals.persons_words``): all of it, up to a quarter of the budget,
and above that by rank. Such a row that the proposal leaves out is put back first, with its whole
round. Then:

1. Results that take more than their share of the budget are shortened, as are pasted blocks here
   and in each of the next steps. A line takes the place of a person's old images above that share,
   and in steps 2, 3 and 6 of the others.
2. Old results are shortened, then old arguments, until the view is down to the target.
3. The oldest rounds and messages are dropped. Where people said something in one, the rest of it is
   shortened instead, and words that had no room whole to their beginning and demands.
4. The oldest insertions that quote no demands are dropped.
5. The round in progress is shortened in steps, to a thousand characters a message.
6. Of results and arguments in the older rounds that stay nothing is left, of words that had no room
   whole only the demands. Where system messages leave less than a quarter of the budget, the round
   in progress keeps 250 characters of each.
7. The round in progress is shortened to nothing.
8. What people said is shortened in steps, the task last; demands stay.
9. Insertions that quote demands are dropped, oldest first.
10. What people said is dropped, oldest first, then demands, at last the task.

Three lines matter. Steps 2 to 5 are taken only where the view is above four fifths of the threshold
(``line_to_drop_to``), and go on until it is below: the next requests need room. Step 6 leaves a
twentieth of the budget free: a view that is nearer to it would be compacted again at once, for
next to nothing. Steps 7 to 10 cost what a person said, or what the model waits for, so only the
budget forces them; a long task alone blanks no running loop. Once they are forced, 8 and 10 go down
to the first line, too, or the next request would force them again.

System messages, pins, the words of the latest human message and the message to be answered are
never touched, and a tool round is dropped as a whole or not at all. The smallest view that this
allows is the floor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from eventctx.messages.shorten import Limit
from eventctx.messages.tool_rounds import Group
from eventctx.policies.policy import PERSONS_SHARE, Budget, Proposal, Visible
from eventctx.policies.proposals import BEGINNING, PersonsWords, persons_words, put_back_words
from eventctx.policies.working_set import WorkingSet
from eventctx.projections.view.refs import InsertionRef

OLD_CHARACTERS: Final = 1_000
"""Characters that are kept of an old result or of old arguments when room is needed."""

OPEN_CHARACTERS: Final = (16_000, 4_000, 1_000, 250, 0)
"""Characters that are kept of results, then of arguments, of the round in progress, by step."""


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
    words = persons_words(visible, budget)
    proposal = put_back_words(visible, proposal, words)
    kept: tuple[InsertionRef, ...] = proposal.kept_insertions
    working_set = WorkingSet(visible, proposal)
    protected, open_round = visible.protected, visible.open_round
    with_results = visible.shortenable
    working_set.shorten_oversize(with_results, budget.tokens)
    drop_line = line_to_drop_to(budget)
    untouched = protected.difference(with_results)
    if working_set.total > drop_line:
        # The policy left too much. Aim for the target, so that the next request has room.
        _shorten_old(working_set, protected | open_round, budget.target)
    staying, said = _drop_old(working_set, protected | open_round, words, drop_line)
    kept = _drop_insertions(working_set, kept, drop_line)
    # The model is to answer what a person pasted last, as it is to read the last results.
    answering = open_round.union(protected.intersection(with_results))
    in_progress = [row for row in sorted(answering) if row not in untouched]
    _shorten_in_steps(working_set, in_progress, OPEN_CHARACTERS[:3], drop_line, budget)
    closed = [row for group in staying for row in group.rows if row not in answering]
    rows = [row for row in closed if row not in untouched]
    _shorten_rows(working_set, rows, protected | words.whole, 0, least_spare(budget))
    system = sum([working_set.tokens_of[row] for row in visible.system])
    if budget.tokens - system < budget.tokens // PERSONS_SHARE:
        # There is little room after any compaction, so make what there can be.
        steps, line = OPEN_CHARACTERS[3:4], least_spare(budget)
        _shorten_in_steps(working_set, in_progress, steps, line, budget)
    if working_set.total > budget.tokens:
        _shorten_in_steps(working_set, in_progress, OPEN_CHARACTERS[3:], drop_line, budget)
    if working_set.total > budget.tokens:
        _shorten_words(working_set, words, protected, drop_line, budget)
    if working_set.total > budget.tokens and kept:
        # Without it less else has to be cut, so the decision is made anew.
        return fit(visible, msgspec.structs.replace(proposal, kept_insertions=kept[1:]), budget)
    if working_set.total > budget.tokens:
        for group in sorted(said, key=lambda one: max([_rank(row, words) for row in one.rows])):
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


def least_spare(budget: Budget) -> int:
    """The most tokens that a view may have for the next request to fit without a compaction."""
    return budget.tokens * 19 // 20


def _shorten_old(working_set: WorkingSet, whole: frozenset[int], target: int) -> None:
    old = [row for row in range(len(working_set.messages)) if row not in whole]
    results, arguments = Limit(outcome=OLD_CHARACTERS, media=0), Limit(arguments=OLD_CHARACTERS)
    for limit in (results, arguments):
        for row in old:
            if working_set.total <= target:
                return
            if working_set.stays(row):
                working_set.shorten(row, limit, "budget")


def _drop_old(
    working_set: WorkingSet, whole: frozenset[int], words: PersonsWords, drop_line: int
) -> tuple[list[Group], list[Group]]:
    """Drop the oldest rounds, and shorten those in which people said something.

    Returns the rounds that stay, and those of them that may go last.
    """
    staying: list[Group] = []
    said: list[Group] = []
    whole_words = words.whole
    for group in working_set.groups:
        if working_set.total <= drop_line:
            break  # nothing that stays has to be shortened
        if not words.rows.keys().isdisjoint(group.rows) and whole.isdisjoint(group.rows):
            said.append(group)
            staying.append(group)
            _shorten_rows(working_set, group.rows, whole_words, BEGINNING, drop_line)
        elif not whole.isdisjoint(group.rows):
            staying.append(group)
        else:
            working_set.drop(group, "budget")
    return staying, said


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
            working_set.shorten(row, Limit(characters, characters, prose, 0), "budget")


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
    working_set: WorkingSet,
    words: PersonsWords,
    protected: frozenset[int],
    drop_line: int,
    budget: Budget,
) -> None:
    """Shorten what people said in steps, by rank, the oldest first. The demands stay."""
    rows = [row for row in words.rows if row not in protected]
    for row in sorted(rows, key=lambda row: (_rank(row, words), row)):
        for characters in OPEN_CHARACTERS:
            if working_set.total <= drop_line:
                return
            if characters < OLD_CHARACTERS and working_set.total <= budget.tokens:
                return
            if working_set.stays(row):
                working_set.shorten(row, Limit(prose=characters), "budget")


_RANKS: Final = ("said", "demand", "task")


def _rank(row: int, words: PersonsWords) -> int:
    reason = words.rows.get(row)
    return -1 if reason is None else _RANKS.index(reason)


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
