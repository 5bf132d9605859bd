"""The working state of a reduction: a decision for every row, and the tokens of the whole view.

A policy starts from a proposal and takes away from it, one row or one tool round at a time. Every
step changes the decisions and the count together, so a policy may compare ``total`` with its goal
after each step without counting the view again: a step costs as much as the rows that it touches,
not as much as the session.

Invariant: ``total`` is the count of the whole view as decided so far (overhead, insertions and
synthetic results included), an upper bound where texts are shortened; ``tokens_of[row]`` is what
the row adds to it while ``here[row]`` is true.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import Final

import msgspec

from eventctx.log.plan import Disposition
from eventctx.messages.facts import Facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.shorten import MARKER_CHARACTERS, Limit, words_left
from eventctx.messages.tokens import Estimator
from eventctx.messages.tool_rounds import Group
from eventctx.policies.policy import Budget, NewInsertion, Proposal, Visible
from eventctx.projections.view.refs import InsertionRef

_STAYS: Final = ("kept", "shortened")

OVERSIZE_SHARE: Final = 4
"""The results of one message may take the budget divided by this: a quarter of it."""


class WorkingSet:
    """A proposal that is reduced step by step; made anew in every call of a policy.

    ``total`` is the tokens of the view as decided so far, an upper bound where texts are shortened.
    """

    def __init__(self, visible: Visible, proposal: Proposal) -> None:
        self._visible = visible
        self.messages = visible.messages
        self.estimator = visible.estimator
        self.decided = dict(proposal.dispositions)
        self.limits = dict(proposal.limits)
        self.groups = visible.groups
        # A view leaves out a result without a call, so dropping one frees nothing.
        self.orphans = visible.orphans
        decided = self.decided
        self.here = [decided[number][0] in _STAYS for number in visible.row_of]
        self.tokens_of = [*visible.tokens_of]
        shown = sum(self.tokens_of)
        if self.limits:
            self._shorten_as_proposed()
        left = sum(compress(self.tokens_of, self.here))
        self.total = self._overhead(visible, proposal) - shown + left

    def _shorten_as_proposed(self) -> None:
        facts, row_of = self._visible.facts, self._visible.row_of
        for number, limit in self.limits.items():
            row = row_of[number]
            if row not in self.orphans:
                self.tokens_of[row] = bound_tokens(facts[row], limit, self.estimator)

    def _overhead(self, visible: Visible, proposal: Proposal) -> int:
        """Tokens of the whole view with the proposal's insertions in place of the present ones."""
        present = sum(ref.tokens for ref in visible.insertions)
        kept = sum(ref.tokens for ref in proposal.kept_insertions)
        new = sum(insertion_tokens(one, self.estimator) for one in proposal.insertions)
        # A dropped round takes its synthetic results along: one for every call without a result.
        freed = sum(
            visible.tokens_made_up(group)
            for group in visible.waiting
            if not self.here[group.calls[0]]
        )
        return visible.tokens - present + kept + new - freed

    def stays(self, row: int) -> bool:
        """Whether a row is still in the view."""
        return self.here[row]

    def shorten(self, row: int, limit: Limit, reason: str) -> None:
        """Shorten a row to ``limit`` and to any limit before it; nothing if that frees nothing."""
        ref = self.messages[row]
        before = self.limits.get(ref.number)
        merged = limit if before is None else Limit(*map(_lower, before, limit))
        tokens = bound_tokens(ref.facts, merged, self.estimator)
        if row in self.orphans or tokens >= self.tokens_of[row]:
            return
        self.limits[ref.number] = merged
        self.decided[ref.number] = ("shortened", reason)
        self.total += tokens - self.tokens_of[row]
        self.tokens_of[row] = tokens

    def free(self, row: int, tokens: int) -> None:
        """Count a row ``tokens`` less. The caller records the limit later, with ``note``."""
        self.tokens_of[row] -= tokens
        self.total -= tokens

    def note(self, rows: Iterable[int], limit: Limit, reason: str) -> None:
        """Record that those of ``rows`` that are still in view are shortened to ``limit``."""
        decided: tuple[Disposition, str] = ("shortened", reason)
        for row in rows:
            if self.here[row]:
                number = self.messages[row].number
                before = self.limits.get(number)
                self.limits[number] = (
                    limit if before is None else Limit(*map(_lower, before, limit))
                )
                self.decided[number] = decided

    def shorten_oversize(self, rows: Iterable[int], budget: int) -> None:
        """Shorten what takes more than its share of the budget: the results of each row, and all
        old images of people together, of which the newest stay.
        """
        share = budget // OVERSIZE_SHARE
        most = share * self.estimator.outcome // 10
        messages, here = self.messages, self.here
        for row in rows:
            if here[row] and messages[row].facts.outcome > most:
                self.shorten(row, Limit(outcome=most), "oversize")
        for row in reversed(self._visible.old_media):
            tokens = self.estimator.tokens_of_media(messages[row].facts)
            if here[row] and tokens > share:
                self.shorten(row, Limit(media=0), "oversize")
            elif here[row]:
                share -= tokens

    def saving(self, row: int, characters: int) -> int:
        """Tokens freed by shortening a row's results and arguments to so many characters."""
        facts = self.messages[row].facts
        if facts.outcome <= characters and facts.arguments <= characters:
            return 0
        dense = self.estimator.digit or self.estimator.wide
        if self.messages[row].number in self.limits or row in self.orphans or dense:
            least = bound_tokens(facts, Limit(characters, characters), self.estimator)
            return max(0, self.tokens_of[row] - least)
        # Written out instead of two calls of shortened_tokens: this runs for every row of a
        # long session.
        rates, freed = self.estimator, 0
        if facts.outcome > characters:
            kept = min(facts.outcome, characters + MARKER_CHARACTERS * max(1, len(facts.results)))
            freed = -(-facts.outcome * 10 // rates.outcome) + (-kept * 10 // rates.outcome)
        if facts.arguments > characters:
            most = characters + 2 * MARKER_CHARACTERS * max(1, len(facts.calls))
            kept = min(facts.arguments, most)
            freed += -(-facts.arguments * 10 // rates.arguments) + (-kept * 10 // rates.arguments)
        return freed

    def saving_words(self, row: int, characters: int) -> int:
        """Tokens freed by cutting a row's words, but for its demands, to so many characters."""
        facts = self.messages[row].facts
        kept = words_left(facts, characters)
        if kept >= facts.prose or row in self.orphans:
            return 0
        if self.estimator.digit or self.estimator.wide:
            before = self.limits.get(self.messages[row].number, Limit())
            merged = Limit(*map(_lower, before, Limit(prose=characters)))
            return max(0, self.tokens_of[row] - bound_tokens(facts, merged, self.estimator))
        rate = self.estimator.prose
        return -(-facts.prose * 10 // rate) + (-kept * 10 // rate)

    def cost(self, group: Group) -> int:
        """Tokens freed by dropping a group."""
        tokens_of, here = self.tokens_of, self.here
        freed = 0
        for row in group.rows:
            if here[row]:
                freed += tokens_of[row]
        made_up = group.pending and here[group.calls[0]]
        return freed + (self._visible.tokens_made_up(group) if made_up else 0)

    def costs(self) -> list[int]:
        """Tokens freed by dropping each group, in the order of the groups."""
        visible, here = self._visible, self.here
        costs = [0] * len(self.groups)
        for place, tokens, stays in zip(visible.group_at, self.tokens_of, here, strict=True):
            if stays:
                costs[place] += tokens
        for group in visible.waiting:
            if here[group.calls[0]]:
                costs[visible.group_at[group.calls[0]]] += visible.tokens_made_up(group)
        return costs

    def drop(self, group: Group, reason: str, cost: int | None = None) -> None:
        """Take a whole group out of the view; ``cost`` is the tokens it frees, where known."""
        self.drop_all((group,), reason, self.cost(group) if cost is None else cost)

    def drop_all(self, groups: Iterable[Group], reason: str, cost: int) -> None:
        """Take whole groups out of the view, which frees ``cost`` tokens together."""
        self.total -= cost
        dropped: tuple[Disposition, str] = ("dropped", reason)
        messages, here, decided, limits = self.messages, self.here, self.decided, self.limits
        for group in groups:
            for row in group.rows:
                if here[row]:
                    here[row] = False
                    number = messages[row].number
                    decided[number] = dropped
                    if limits:
                        limits.pop(number, None)


def begin_reduction(
    visible: Visible, budget: Budget, insertions: Iterable[InsertionRef] | None = None
) -> WorkingSet:
    """The view as it is, but with results that take more than their share of the budget shortened.

    Where ``insertions`` are given, these stay, and not all.
    """
    whole = keep_whole(visible)
    if insertions is not None:
        whole = msgspec.structs.replace(whole, kept_insertions=tuple(insertions))
    working_set = WorkingSet(visible, whole)
    working_set.shorten_oversize(visible.shortenable, budget.tokens)
    return working_set


def keep_whole(visible: Visible, reason: str = "fits") -> Proposal:
    """The proposal that leaves the view as it is."""
    whole: tuple[Disposition, str] = ("kept", reason)
    already: tuple[Disposition, str] = ("shortened", reason)
    messages = visible.messages
    decided = dict.fromkeys(visible.row_of, whole)
    decided.update({ref.number: already for ref in messages if ref.shortened})
    for rows, why in ((visible.system, "system"), (visible.pinned, "pinned")):
        for row in rows:
            number = messages[row].number
            decided[number] = (decided[number][0], why)
    return Proposal(decided, kept_insertions=tuple(visible.insertions))


def bound_tokens(facts: Facts, limit: Limit, estimator: Estimator) -> int:
    """An upper bound of a message's tokens under ``limit``, from its facts."""
    outcome, arguments, prose = facts.outcome, facts.arguments, facts.prose
    if limit.outcome is not None:
        markers = MARKER_CHARACTERS * max(1, len(facts.results))
        outcome = min(outcome, limit.outcome + markers)
    if limit.arguments is not None:
        most = limit.arguments + 2 * MARKER_CHARACTERS * max(1, len(facts.calls))
        arguments = min(arguments, most)
    if limit.prose is not None:
        prose = words_left(facts, limit.prose)
    if limit.leaves_out_media(facts):
        prose += MARKER_CHARACTERS * len(facts.media)
        facts = msgspec.structs.replace(facts, media=())
    return estimator.tokens_with(facts, prose, arguments, outcome)


def insertion_tokens(insertion: NewInsertion, estimator: Estimator) -> int:
    """Estimated tokens of an insertion that is not stored yet."""
    return estimator.tokens(read_facts(insertion.message))


def _lower(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return first if second is None else second
    return min(first, second)
