"""The native policy: the provider's API writes the summary, and we decide when and of what.

The view is cut at the start of a round. All that comes before the cut goes to the API as it is, and
its answer takes the place of those messages: Anthropic's signed block as the first message of the
conversation, OpenAI's opaque item before the messages that are kept. What a person said, pins and
system messages stay besides, as under every policy.

Invariant: between the API's summary and the tail nothing is left out or changed. So a model that
checks what was before its thinking accepts that of the tail, where nothing a person said is kept in
between (``planned.refused_thinking``).

Where the API cannot be asked or answers with no summary, the fallback policy decides, as for any
policy whose question has no answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import msgspec

from eventctx.log.plan import Disposition, numbers_in
from eventctx.messages.overlap import runs_of_numbers
from eventctx.policies.constraints import Share, check
from eventctx.policies.ladder import Ladder
from eventctx.policies.policy import (
    Ask,
    AskSummary,
    Budget,
    NewInsertion,
    PolicyState,
    Proposal,
    Summary,
    Visible,
)
from eventctx.policies.proposals import persons_words
from eventctx.policies.summary_text import UnfitSummary, unite_runs
from eventctx.policies.working_set import begin_reduction, insertion_tokens
from eventctx.projections.view.refs import InsertionRef

LEAST_SAVED: Final = 10
"""A compaction must save the tokens that it aims for divided by this: less is not worth a call."""

LEAST_FREED: Final = 400
"""Tokens that must leave: an API's summary takes some hundreds, whatever it is of."""


class NativeCut(msgspec.Struct, frozen=True, array_like=True):
    """A view cut before message ``until``; as JSON it is the key of the question.

    ``runs`` are the messages that leave, ``merged`` the older summaries that leave with them, as
    positions and indexes of their bodies.
    """

    until: int
    runs: tuple[tuple[int, int], ...]
    merged: tuple[tuple[int, int], ...]

    @property
    def key(self) -> str:
        """The question's key; it holds all that the answer depends on."""
        return f"native {msgspec.json.encode(self).decode()}"


class Native(msgspec.Struct, frozen=True):
    """Settings of the native policy.

    ``keep_recent_share`` is the part of the target that the recent tail may take, from 0 to 1.
    """

    keep_recent_share: Share = 0.25
    name: str = "native"
    version: int = 1

    def __post_init__(self) -> None:
        check(self)

    @property
    def max_messages(self) -> int | None:
        """The policy counts tokens, not messages."""
        return None

    @property
    def needs_summarizer(self) -> bool:
        """A session with this policy must be given a function that asks the API."""
        return True

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal | Ask:
        """A question for the API's summary, or the proposal once that is among the answers.

        The ladder decides where too little would leave. Raises UnfitSummary.
        """
        manual = state.trigger == "manual"
        goal = min(budget.target, visible.tokens // 2) if manual else budget.target
        scene = _Scene(visible, budget)
        for key, answer in state.answers.items():
            cut = _cut_of(key)
            if cut is not None and isinstance(answer, Summary) and scene.allows(cut):
                return scene.proposal(cut, answer)
        cut = scene.cut(int(max(1, goal) * self.keep_recent_share))
        freed = 0 if cut is None else scene.freed(cut)
        if cut is None or freed < LEAST_FREED or freed * LEAST_SAVED < goal:
            return Ladder().propose(visible, budget, state)
        numbers = tuple(sorted(numbers_in(cut.runs)))
        merged = tuple([one for one in visible.insertions if _place(one) in cut.merged])
        return AskSummary(cut.key, numbers, max(1, goal), merged, until=cut.until)


class _Scene:
    """A view, the rows that must stay, and the cuts that are possible."""

    def __init__(self, visible: Visible, budget: Budget) -> None:
        self.visible = visible
        self.words = persons_words(visible, budget)
        self.costs = begin_reduction(visible, budget).costs()
        head = visible.protected | visible.open_round | set(self.words.rows)
        groups = visible.groups
        self.staying = {row for at in visible.groups_with(head) for row in groups[at].rows}

    def cut(self, share: int) -> NativeCut | None:
        """The latest cut whose tail takes at most ``share`` tokens; None if nothing would leave."""
        for loop in (self.visible.open_loop, frozenset[int]()):
            start = self._start(share, self.visible.open_round | loop)
            if start:
                found = self._before(start)
                if found.runs:
                    return found
        return None

    def _start(self, share: int, holding: frozenset[int]) -> int:
        """The first row of the tail; 0 if the tail would be all."""
        groups = [(at, one) for at, one in enumerate(self.visible.groups) if not one.orphan]
        last = min(holding, default=len(self.visible.messages))
        ends = [*accumulate([max(group.rows) for _, group in groups], max)]
        start, left = 0, share
        for place in range(len(groups) - 1, -1, -1):
            at, group = groups[place]
            left -= self.costs[at]
            whole = place == 0 or ends[place - 1] < group.rows[0]  # no round is on both sides
            if whole and self._turns(group.rows[0]):
                if start and left < 0 and start <= last:
                    break
                start = group.rows[0]
        return start

    def _turns(self, row: int) -> bool:
        """Whether the speaker changes before a row: else the API takes both for one message."""
        facts = self.visible.facts
        return row == 0 or (facts[row].kind == "assistant") != (facts[row - 1].kind == "assistant")

    def _before(self, start: int) -> NativeCut:
        numbers = [ref.number for ref in self.visible.messages]
        leaving = [n for row, n in enumerate(numbers[:start]) if row not in self.staying]
        merged = [_place(one) for one in self._earlier(start) if one.kind == "summary"]
        return NativeCut(numbers[start], runs_of_numbers(sorted(leaving)), tuple(merged))

    def _earlier(self, start: int) -> Iterator[InsertionRef]:
        """The insertions before a row."""
        row_of = self.visible.row_of
        for one in self.visible.insertions:
            if one.before is None or row_of.get(one.before, start + 1) <= start:
                yield one

    def freed(self, cut: NativeCut) -> int:
        """About the tokens that leave with a cut."""
        rows = {self.visible.row_of[number] for number in numbers_in(cut.runs)}
        messages = sum([self.costs[place] for place in self.visible.groups_with(rows)])
        older = [one for one in self.visible.insertions if _place(one) in cut.merged]
        return messages + sum([one.tokens for one in older])

    def allows(self, cut: NativeCut) -> bool:
        """Whether all that a cut takes out is in view, before its tail, and may still leave."""
        row_of = self.visible.row_of
        here = {_place(one) for one in self.visible.insertions}
        start = row_of.get(cut.until)
        rows = [row_of.get(number) for number in numbers_in(cut.runs)]
        leaving = {row for row in rows if row is not None}
        groups = self.visible.groups
        if any(not leaving.issuperset(groups[at].rows) for at in self.visible.groups_with(leaving)):
            return False
        return (
            start is not None
            and here.issuperset(cut.merged)
            and all(row is not None and row < start and row not in self.staying for row in rows)
        )

    def proposal(self, cut: NativeCut, answer: Summary) -> Proposal:
        """The proposal with the API's summary in place of all that the cut takes out."""
        if answer.message is None:
            raise UnfitSummary("expected the provider's own summary, found a text")
        visible, gone = self.visible, numbers_in(cut.runs)
        merged = [one for one in visible.insertions if _place(one) in cut.merged]
        runs = unite_runs([*cut.runs, *(run for one in merged for run in one.stands_for)])
        depth = 1 + max([one.depth for one in merged], default=0)
        # Anthropic's block is the first of the conversation, whatever is kept after it.
        first = answer.message.get("role") is not None
        place = None if first else cut.until
        new = NewInsertion("summary", dict(answer.message), place, runs, depth)
        tokens = insertion_tokens(new, visible.estimator)
        if tokens >= self.freed(cut):
            raise UnfitSummary(
                f"the summary takes {tokens} tokens; expected less than what it stands for"
            )
        kept = [
            msgspec.structs.replace(one, before=cut.until)
            if one.before is None or one.before in gone
            else one
            for one in visible.insertions
            if one not in merged
        ]
        return Proposal(
            {
                ref.number: self._decide(row, ref.shortened, gone, cut)
                for row, ref in enumerate(visible.messages)
            },
            insertions=(new,),
            kept_insertions=tuple(kept),
        )

    def _decide(
        self, row: int, shortened: bool, gone: set[int], cut: NativeCut
    ) -> tuple[Disposition, str]:
        visible = self.visible
        if visible.messages[row].number in gone:
            return "summarised", "summary"
        return "shortened" if shortened else "kept", self._reason(row)

    def _reason(self, row: int) -> str:
        visible = self.visible
        if visible.facts[row].kind == "system":
            return "system"
        if row in visible.pinned:
            return "pinned"
        if row == visible.latest_human:
            return "latest_human"
        if row == visible.to_answer:
            return "latest"
        if row in self.words.rows:
            return self.words.rows[row]
        return "open_round" if row in visible.open_round else "recent"


def _cut_of(key: str) -> NativeCut | None:
    try:
        return msgspec.json.decode(key.removeprefix("native "), type=NativeCut)
    except msgspec.DecodeError:
        return None


def _place(one: InsertionRef) -> tuple[int, int]:
    return one.position, one.index
