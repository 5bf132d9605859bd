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

import msgspec

from eventctx.messages.shorten import Limit
from eventctx.messages.tool_rounds import Group
from eventctx.policies.policy import Budget, Proposal, Visible
from eventctx.policies.working_set import WorkingSet
from eventctx.projections.view.refs import InsertionRef, MessageRef

OLD_CHARACTERS: Final = 1_000
"""What stays of an old result or of old arguments when room is needed."""

OPEN_CHARACTERS: Final = (16_000, 4_000, 1_000, 250, 0)
"""Steps by which the round in progress is shortened."""


class Fitted(NamedTuple):
    """A proposal that fits, its estimated tokens, and the parts of a floor that does not fit.

    ``overflow`` is empty unless ``tokens`` is more than the budget and nothing is left to reduce.
    """

    proposal: Proposal
    tokens: int
    overflow: dict[str, int]


def fit(visible: Visible, proposal: Proposal, budget: Budget) -> Fitted:
    """Reduce ``proposal`` until it fits ``budget``; pure, on facts alone."""
    kept: tuple[InsertionRef, ...] = proposal.kept_insertions
    working_set = WorkingSet(visible, proposal)
    protected, open_round = protected_rows(visible, working_set.groups)
    working_set.shorten_oversize(shortenable(visible, protected), budget.tokens)
    drop_line = line_to_drop_to(budget)
    if working_set.total > drop_line:
        # The policy did not get there: go for the target, so that the next request has room.
        whole = protected | open_round
        old = [row for row in range(len(visible.messages)) if row not in whole]
        for limit in (Limit(outcome=OLD_CHARACTERS), Limit(arguments=OLD_CHARACTERS)):
            for row in old:
                if working_set.total <= budget.target:
                    break
                if working_set.stays(row):
                    working_set.shorten(row, limit, "budget")
    for group in working_set.groups:
        if working_set.total <= drop_line:
            break
        if protected.isdisjoint(group.rows) and open_round.isdisjoint(group.rows):
            working_set.drop(group, "budget")
    while working_set.total > drop_line and kept:
        # Summaries and notices go last of what can go, oldest first.
        working_set.total -= kept[0].tokens
        kept = kept[1:]
    _shorten_open_round(working_set, open_round - protected, drop_line, budget)
    fitted = msgspec.structs.replace(
        proposal, dispositions=working_set.decided, limits=working_set.limits, kept_insertions=kept
    )
    overflow = {}
    if working_set.total > budget.tokens:
        overflow = _parts(working_set, visible, open_round)
    return Fitted(fitted, working_set.total, overflow)


def line_to_drop_to(budget: Budget) -> int:
    """How far down a view must come, for the next requests to have room."""
    return min(budget.tokens, budget.threshold * 4 // 5)


def shortenable(visible: Visible, protected: frozenset[int]) -> list[int]:
    """Rows whose results may be shortened: not pins, and of protected rows those with both.

    Of a row that holds a person's words and results, the results may be shortened.
    """
    pins = visible.pins
    return [
        row
        for row, ref in enumerate(visible.messages)
        if ref.facts.outcome
        and ref.number not in pins
        and (row not in protected or (ref.facts.human and ref.facts.results))
    ]


def _shorten_open_round(
    working_set: WorkingSet, rows: frozenset[int], drop_line: int, budget: Budget
) -> None:
    for characters in OPEN_CHARACTERS:
        for limit in (Limit(outcome=characters), Limit(arguments=characters)):
            for row in sorted(rows):
                if working_set.total <= drop_line:
                    return
                if working_set.stays(row):
                    working_set.shorten(row, limit, "budget")
        # Below a thousand characters a text is of little use: go on only where one must.
        if characters <= OLD_CHARACTERS and working_set.total <= budget.tokens:
            return


def protected_rows(
    visible: Visible, groups: Sequence[Group]
) -> tuple[frozenset[int], frozenset[int]]:
    """Rows that must stay whole, and rows of the round in progress, which may be shortened."""
    messages = visible.messages
    protected = {
        row
        for row, ref in enumerate(messages)
        if ref.facts.kind == "system" or ref.number in visible.pins
    }
    human = latest_human(messages)
    protected.update(row for row in (human, to_answer(messages, groups)) if row is not None)
    return frozenset(protected), open_rows(messages, groups, human)


def to_answer(messages: Sequence[MessageRef], groups: Sequence[Group]) -> int | None:
    """The row at the end that the model is to answer, whoever wrote it.

    None where that is a tool round, which is protected as such. Where nobody asked anything it is
    the model's own last words: a request of nothing at all would be refused.
    """
    orphans = {row for calls, results, _ in groups if not calls for row in results}
    conversation = (
        row
        for row in range(len(messages) - 1, -1, -1)
        if messages[row].facts.kind != "system" and row not in orphans
    )
    last = next(conversation, None)
    if last is None:
        return None
    facts = messages[last].facts
    if facts.kind in ("human", "user", "other"):
        return last
    answer = facts.kind == "assistant" and not facts.calls
    return last if answer and latest_human(messages) is None else None


def latest_human(messages: Sequence[MessageRef]) -> int | None:
    """The row of the latest message that holds a person's words."""
    return next((r for r in range(len(messages) - 1, -1, -1) if messages[r].facts.human), None)


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
