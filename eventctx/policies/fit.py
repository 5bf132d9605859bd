"""The last stage of every policy: make a proposal fit the budget, cheapest loss first.

In order: results that take more than their share of the budget are shortened; then old results,
then old arguments, down to the target; then the oldest rounds and messages are dropped, until the
view is well below the threshold again; last, the round in progress is shortened as far as it
takes. System messages, pins and the latest human message are never touched. What is left then is
the floor: if it exceeds the budget, ``Fitted.overflow`` says by which parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from eventctx.messages import Facts, read_facts
from eventctx.policies.policy import Budget, NewInsertion, Proposal, Visible
from eventctx.refs import InsertionRef, MessageRef
from eventctx.rounds import Group, group_rows
from eventctx.shorten import MARKER_CHARACTERS, Limit
from eventctx.tokens import BY_KIND, SYNTHETIC_TOKENS

OLD_CHARACTERS: Final = 1_000
"""What stays of an old result or of old arguments when room is needed."""

OPEN_CHARACTERS: Final = (16_000, 4_000, 1_000, 250, 0)
"""Steps by which the round in progress is shortened."""

OVERSIZE_SHARE: Final = 4
"""One message's results may take this fraction of the budget: a quarter."""


class Fitted(NamedTuple):
    """A proposal that fits, its estimated tokens, and the parts of a floor that does not fit.

    ``overflow`` is empty unless ``tokens`` is more than the budget and nothing is left to reduce.
    """

    proposal: Proposal
    tokens: int
    overflow: dict[str, int]


class _Bench:
    """The working state of one fit: decisions, limits and the running total."""

    def __init__(self, visible: Visible, proposal: Proposal) -> None:
        self.messages = visible.messages
        self.rows = {ref.number: row for row, ref in enumerate(visible.messages)}
        self.decided = dict(proposal.dispositions)
        self.limits = dict(proposal.limits)
        self.groups = group_rows([ref.facts for ref in visible.messages])
        # A result without a call is in no view, so leaving it out frees nothing.
        self.orphans = {row for group in self.groups if group.orphan for row in group.rows}
        self.tokens_of = [
            0 if row in self.orphans else self._tokens(ref)
            for row, ref in enumerate(visible.messages)
        ]
        self.total = self._overhead(visible, proposal) + sum(
            self.tokens_of[row] for row in range(len(self.messages)) if self.stays(row)
        )

    def _overhead(self, visible: Visible, proposal: Proposal) -> int:
        """Tokens of what is in the view besides messages: insertions and synthetic results."""
        shown = sum(
            ref.tokens for row, ref in enumerate(visible.messages) if row not in self.orphans
        )
        present = sum(ref.tokens for ref in visible.insertions)
        kept = sum(ref.tokens for ref in proposal.kept_insertions)
        new = sum(insertion_tokens(one) for one in proposal.insertions)
        # Calls without an answer leave with their round, and so do the results made up for them.
        gone = [group for group in self.groups if not self.stays(group.rows[0])]
        freed = SYNTHETIC_TOKENS * sum(len(group.pending) for group in gone)
        return visible.tokens - shown - present + kept + new - freed

    def stays(self, row: int) -> bool:
        return self.decided[self.messages[row].number][0] in ("kept", "shortened")

    def _tokens(self, ref: MessageRef) -> int:
        limit = self.limits.get(ref.number)
        return ref.tokens if limit is None else shortened_tokens(ref.facts, limit)

    def shorten(self, row: int, limit: Limit, reason: str) -> None:
        """Shorten further; a limit that frees nothing changes nothing."""
        ref = self.messages[row]
        before = self.limits.get(ref.number, Limit())
        merged = Limit(
            _lower(before.outcome, limit.outcome), _lower(before.arguments, limit.arguments)
        )
        tokens = shortened_tokens(ref.facts, merged)
        if row in self.orphans or tokens >= self.tokens_of[row]:
            return
        self.limits[ref.number] = merged
        self.decided[ref.number] = ("shortened", reason)
        self.total += tokens - self.tokens_of[row]
        self.tokens_of[row] = tokens

    def drop(self, group: Group) -> None:
        if self.stays(group.rows[0]):
            self.total -= SYNTHETIC_TOKENS * len(group.pending)
        for row in group.rows:
            if self.stays(row):
                self.total -= self.tokens_of[row]
                self.decided[self.messages[row].number] = ("dropped", "budget")
                self.limits.pop(self.messages[row].number, None)


def fit(visible: Visible, proposal: Proposal, budget: Budget) -> Fitted:
    """Reduce ``proposal`` until it fits ``budget``; pure, on facts alone."""
    kept: tuple[InsertionRef, ...] = proposal.kept_insertions
    bench = _Bench(visible, proposal)
    protected, open_round = _protected(visible, bench.groups)
    share = budget.tokens // OVERSIZE_SHARE
    for row, ref in enumerate(visible.messages):
        # Of a row that holds a person's words and results, the results may be shortened.
        whole = row in protected and not (ref.facts.human and ref.facts.results)
        whole = whole or ref.number in visible.pins
        if bench.stays(row) and not whole and _outcome_tokens(ref.facts) > share:
            bench.shorten(row, Limit(outcome=_characters(share)), "oversize")
    old = [row for row in range(len(visible.messages)) if row not in protected | open_round]
    for limit in (Limit(outcome=OLD_CHARACTERS), Limit(arguments=OLD_CHARACTERS)):
        for row in old:
            if bench.total <= budget.target:
                break
            if bench.stays(row):
                bench.shorten(row, limit, "budget")
    drop_line = min(budget.tokens, budget.threshold * 4 // 5)
    for group in bench.groups:
        if bench.total <= drop_line:
            break
        if protected.isdisjoint(group.rows) and open_round.isdisjoint(group.rows):
            bench.drop(group)
    while bench.total > drop_line and kept:
        # Summaries and notices go last of what can go, oldest first.
        bench.total -= kept[0].tokens
        kept = kept[1:]
    _shorten_open_round(bench, open_round - protected, drop_line, budget)
    fitted = Proposal(bench.decided, bench.limits, proposal.insertions, kept)
    overflow = {}
    if bench.total > budget.tokens:
        overflow = _parts(bench, visible, open_round)
    return Fitted(fitted, bench.total, overflow)


def _shorten_open_round(
    bench: _Bench, rows: frozenset[int], drop_line: int, budget: Budget
) -> None:
    for characters in OPEN_CHARACTERS:
        for limit in (Limit(outcome=characters), Limit(arguments=characters)):
            for row in sorted(rows):
                if bench.total <= drop_line:
                    return
                if bench.stays(row):
                    bench.shorten(row, limit, "budget")
        # Below a thousand characters a text is of little use: go on only where one must.
        if characters <= OLD_CHARACTERS and bench.total <= budget.tokens:
            return


def shortened_tokens(facts: Facts, limit: Limit) -> int:
    """An upper bound of a message's tokens under ``limit``, from its facts."""
    markers = MARKER_CHARACTERS * max(1, len(facts.results))
    outcome, arguments = facts.outcome, facts.arguments
    if limit.outcome is not None:
        outcome = min(outcome, limit.outcome + markers)
    if limit.arguments is not None:
        most = limit.arguments + 2 * MARKER_CHARACTERS * max(1, len(facts.calls))
        arguments = min(arguments, most)
    return BY_KIND.tokens(
        Facts(
            facts.reader,
            facts.role,
            facts.kind,
            facts.dialect,
            facts.calls,
            facts.results,
            facts.prose,
            arguments,
            outcome,
            facts.thinking,
            facts.images,
        )
    )


def insertion_tokens(insertion: NewInsertion) -> int:
    """Estimated tokens of an insertion that is not stored yet."""
    return BY_KIND.tokens(read_facts(insertion.message))


def _outcome_tokens(facts: Facts) -> int:
    return -(-facts.outcome * 10 // BY_KIND.outcome)


def _characters(tokens: int) -> int:
    return tokens * BY_KIND.outcome // 10


def _lower(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return first if second is None else second
    return min(first, second)


def _protected(visible: Visible, groups: Sequence[Group]) -> tuple[frozenset[int], frozenset[int]]:
    """Rows that must stay whole, and rows of the round in progress, which may be shortened."""
    messages = visible.messages
    protected = {
        row
        for row, ref in enumerate(messages)
        if ref.facts.kind == "system" or ref.number in visible.pins
    }
    human = next((r for r in range(len(messages) - 1, -1, -1) if messages[r].facts.human), None)
    if human is not None:
        protected.add(human)
    return frozenset(protected), open_rows(messages, groups, human)


def open_rows(
    messages: Sequence[MessageRef], groups: Sequence[Group], human: int | None
) -> frozenset[int]:
    """Rows of the tool round that the model has yet to go on from; empty when there is none."""
    for group in reversed(groups):
        if any(messages[row].facts.kind == "assistant" for row in group.calls):
            in_progress = any(messages[row].facts.calls for row in group.calls)
            if in_progress and (human is None or human < group.calls[0] or human in group.rows):
                return frozenset(group.rows)
            return frozenset()
    return frozenset()


def _parts(bench: _Bench, visible: Visible, open_round: frozenset[int]) -> dict[str, int]:
    parts = {"system messages": 0, "pins": 0, "latest human message": 0, "open round": 0}
    for row, ref in enumerate(visible.messages):
        if not bench.stays(row):
            continue
        if ref.facts.kind == "system":
            part = "system messages"
        elif ref.number in visible.pins:
            part = "pins"
        else:
            part = "open round" if row in open_round else "latest human message"
        parts[part] += bench.tokens_of[row]
    parts["notices and synthetic results"] = max(0, bench.total - sum(parts.values()))
    return parts
