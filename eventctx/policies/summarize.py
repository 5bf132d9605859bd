"""The summarize policy: one summary stands for the middle of the conversation.

The head (system messages, pins, what people said up to a quarter of the budget) and a recent tail
stay as they are. What people said beyond that goes into the summary, and their demands word for
word: what the model leaves out is added.
Summaries have the same depth until ``fan_in`` of them are in view; then the next one takes them
in and is one deeper, so that their number grows with the logarithm of the session.

The policy returns a question for a summary, and the engine calls it again with the answer.
Messages that were added meanwhile stay. The question's key holds all that the answer depends on
(``Cut``), so the second call needs no memory of the first: an answer is used if the messages that
it summarises may still leave the view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from eventctx.log.plan import Disposition, numbers_in
from eventctx.messages.overlap import runs_of_numbers
from eventctx.messages.tool_rounds import Group
from eventctx.policies.constraints import AtLeastOne, Share, check
from eventctx.policies.fit import fit, line_to_drop_to
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
from eventctx.policies.proposals import missing_words, persons_words
from eventctx.policies.summary_text import (
    UnfitSummary,
    check_length,
    demands_to_add,
    most_tolerated,
    summary_message,
    unite_runs,
)
from eventctx.policies.working_set import begin_reduction, insertion_tokens
from eventctx.projections.view.refs import InsertionRef

LEAST_SAVED: Final = 10
"""A summary must save the tokens that a compaction aims for divided by this, a tenth: less is not
worth a model call, and the next compaction would soon be due."""

SUMMARY_SHARE: Final = 8
"""One summary may take the tokens that a compaction aims for divided by this: an eighth."""

SUMMARIES_SHARE: Final = 2
"""Older summaries that take more than the tokens aimed for divided by this, a half, are taken in
at once: they would crowd out the tail, and the fit stage would drop the oldest."""

DEMANDS_SHARE: Final = 4
"""The demands in one summary may take the target divided by this: a quarter. Messages whose demands
have no room in it stay in view."""

FRAME_TOKENS: Final = 120
"""About the tokens of a summary's header, note and marks."""


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """The part of a view that one summary replaces; as JSON it is the key of the question.

    ``runs`` are the message numbers that the summary stands for. ``covered`` are numbers that
    leave the view because an older summary stands for them already (they had been restored).
    ``merged`` are the older summaries that it takes in, as positions and indexes of their bodies.
    ``most`` is the most tokens that it may have.
    """

    runs: tuple[tuple[int, int], ...]
    covered: tuple[tuple[int, int], ...]
    merged: tuple[tuple[int, int], ...]
    most: int

    @property
    def key(self) -> str:
        """The question's key; it holds all that the answer depends on."""
        return f"summary {msgspec.json.encode(self).decode()}"


class Summarize(msgspec.Struct, frozen=True):
    """Settings of the summarize policy.

    ``keep_recent_share`` is the part of the target that the recent tail may take (from 0 to 1),
    ``summary_tokens`` the most tokens that are requested for one summary, ``fan_in`` how many
    summaries of one depth are taken into the next one.
    """

    keep_recent_share: Share = 0.5
    summary_tokens: AtLeastOne = 2_000
    fan_in: Annotated[int, Meta(ge=2, description="an int from 2")] = 4
    name: str = "summarize"
    version: int = 3

    def __post_init__(self) -> None:
        check(self)

    @property
    def max_messages(self) -> int | None:
        """The policy counts tokens, not messages."""
        return None

    @property
    def needs_summarizer(self) -> bool:
        """A session with this policy must be given a summarizer."""
        return True

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal | Ask:
        """A question for a summary, or the proposal once the summary is among the answers.

        The ladder decides instead where there is too little between head and tail, or where the
        view is small enough after oversize results are shortened. Raises UnfitSummary.
        """
        goal = _goal(visible, budget, state)
        scene = _Scene(visible, budget)
        if scene.working_set.total <= goal:
            return Ladder().propose(visible, budget, state)
        for key, answer in state.answers.items():
            cut = _cut_of(key)
            if cut is not None and isinstance(answer, Summary) and scene.allows(cut):
                return _check_answer(scene, cut, answer)
        cut = self._cut(scene, goal)
        if cut is None:
            return Ladder().propose(visible, budget, state)
        merged = tuple([one for one in visible.insertions if _place(one) in cut.merged])
        numbers = tuple(sorted(numbers_in(cut.runs)))
        return AskSummary(cut.key, numbers, cut.most, merged)

    def _cut(self, scene: _Scene, goal: int) -> Cut | None:
        """The first cut that frees enough, else the deepest; None if none is worth a summary."""
        merged = self._summaries_to_merge(scene.visible.insertions, goal)
        most = max(1, min(self.summary_tokens, goal // SUMMARY_SHARE))
        found: Cut | None = None
        for guarded in scene.guards():
            places = self._middle(scene, guarded, goal, most)
            middle = [scene.visible.groups[place] for place in places]
            freed = sum([scene.costs[place] for place in places])
            freed += sum(one.tokens for one in merged) - most - FRAME_TOKENS
            freed -= scene.tokens_of_demands(middle)
            if not middle or freed * LEAST_SAVED < goal:
                continue
            cut = scene.cut(middle, merged, most)
            if not cut.runs or scene.overflows(cut):
                continue
            found = cut
            if scene.working_set.total - freed <= line_to_drop_to(scene.budget):
                break
        return found

    def _middle(self, scene: _Scene, guarded: frozenset[int], goal: int, most: int) -> list[int]:
        """The places of the rounds before the tail that are not guarded.

        The tail has at least one round.
        """
        visible, costs = scene.visible, scene.costs
        staying = visible.groups_with(guarded)
        rounds = [place for place, group in enumerate(visible.groups) if not group.orphan]
        free = {place for place in rounds if place not in staying}
        freed = sum([costs[place] for place in free])
        fixed = scene.working_set.total - freed + most + FRAME_TOKENS
        share, room = int(goal * self.keep_recent_share), goal - fixed
        start = len(rounds)
        for place in reversed(rounds):
            share -= costs[place]
            room -= costs[place] if place in free else 0
            if place in free and start < len(rounds) and min(share, room) < 0:
                break
            start -= 1
        return [place for place in rounds[:start] if place in free]

    def _summaries_to_merge(
        self, insertions: Sequence[InsertionRef], goal: int
    ) -> list[InsertionRef]:
        """Older summaries that the next one takes in: those of a full depth and all less deep."""
        summaries = [one for one in insertions if one.kind == "summary"]
        if sum(one.tokens for one in summaries) * SUMMARIES_SHARE > goal:
            return summaries
        depths = [one.depth for one in summaries]
        full = [depth for depth in depths if depths.count(depth) >= self.fan_in]
        return [one for one in summaries if full and one.depth <= max(full)]


class _Scene:
    """A view and the rounds that may leave it; made anew in every call of the policy.

    ``head`` are rows of the rounds that must stay, ``said`` those of rounds with a person's words
    that have room, ``demands`` the rows with demands that have none.
    """

    def __init__(self, visible: Visible, budget: Budget) -> None:
        self.visible = visible
        self.budget = budget
        # The fit stage shortens large results in any case, so no summary need free them.
        self.working_set = begin_reduction(visible, budget)
        self.costs = self.working_set.costs()
        self.words = persons_words(visible, budget)
        self.head = self._whole(visible.protected | visible.open_round)
        self.said = self._whole(set(self.words.rows))
        beyond = visible.said.items() - self.words.rows.items()
        self.demands = sorted([row for row, why in beyond if why == "demand"])
        self.row_of = visible.row_of

    def _whole(self, rows: frozenset[int] | set[int]) -> frozenset[int]:
        groups = self.visible.groups
        touched = self.visible.groups_with(rows)
        return frozenset([row for place in touched for row in groups[place].rows])

    def guards(self) -> Iterator[frozenset[int]]:
        """Sets of rows that stay, each smaller than the one before.

        The second gives up the open tool loop.
        """
        yield self.head | self.said | self._whole(self.visible.open_loop)
        yield self.head | self.said

    def cut(self, middle: Sequence[Group], merged: Sequence[InsertionRef], most: int) -> Cut:
        """The cut that takes ``middle`` out; messages that a summary covers are not in ``runs``."""
        covered = self._summarised([one for one in self.visible.insertions if one not in merged])
        numbers = sorted(self.visible.messages[row].number for one in middle for row in one.rows)
        return Cut(
            runs_of_numbers([number for number in numbers if number not in covered]),
            runs_of_numbers([number for number in numbers if number in covered]),
            tuple([_place(one) for one in merged]),
            most,
        )

    @staticmethod
    def _summarised(insertions: Sequence[InsertionRef]) -> set[int]:
        """Numbers of the messages that these insertions, as far as summaries, stand for."""
        runs = [run for one in insertions if one.kind == "summary" for run in one.stands_for]
        return numbers_in(runs)

    def allows(self, cut: Cut) -> bool:
        """Whether every message and summary of ``cut`` is in view, in whole rounds, and may go."""
        numbers = numbers_in((*cut.runs, *cut.covered))
        rows = {self.row_of[number] for number in numbers if number in self.row_of}
        kept = [one for one in self.visible.insertions if _place(one) not in cut.merged]
        here = len(self.visible.insertions) - len(kept)
        return (
            len(rows) == len(numbers)
            and here == len(cut.merged)
            and numbers_in(cut.covered) <= self._summarised(kept)
            and self.head.isdisjoint(rows)
            and self._whole(rows) == rows
        )

    @property
    def _room_for_demands(self) -> int:
        """Characters that the demands in a summary may take."""
        return self.budget.target // DEMANDS_SHARE * self.visible.estimator.prose // 10

    def tokens_of_demands(self, middle: Sequence[Group]) -> int:
        """About the tokens of the demands that a summary of ``middle`` quotes."""
        rows = {row for group in middle for row in group.rows}
        facts = [self.visible.messages[row].facts for row in self.demands if row in rows]
        characters = sum([one.demand_characters + 10 * one.demands for one in facts])
        characters = min(characters, self._room_for_demands)
        return characters * 10 // self.visible.estimator.prose

    def overflows(self, cut: Cut) -> bool:
        """Whether the longest summary that is accepted would leave too little for what must stay.

        It is taken to quote no demand, so that all of them are added to it.
        """
        rate = self.visible.estimator.prose
        numbers = numbers_in(cut.runs)
        demands = [
            (ref.number, "-" * max(1, ref.facts.demand_characters))
            for ref in [self.visible.messages[row] for row in self.demands]
            if ref.number in numbers
        ]
        longest = Summary("x" * (most_tolerated(cut.most) * rate // 10), demands=tuple(demands))
        return self.crowds_out(self.proposal(cut, longest))

    def crowds_out(self, proposal: Proposal) -> bool:
        """Whether there is no room for a summary besides the floor and what people said."""
        fitted = fit(self.visible, proposal, self.budget)
        words = self.words
        numbers = {self.visible.messages[row].number for row in words.whole}
        limits = [limit for n, limit in fitted.proposal.limits.items() if n in numbers]
        return (
            bool(fitted.overflow)
            or bool(missing_words(self.visible, fitted.proposal, words))
            or any(limit.prose is not None for limit in limits)
        )

    def taken(self, cut: Cut) -> tuple[list[InsertionRef], frozenset[int], int]:
        """The older summaries and the rows that ``cut`` takes out, and the tokens of both."""
        merged = [one for one in self.visible.insertions if _place(one) in cut.merged]
        rows = frozenset(self.row_of[number] for number in numbers_in((*cut.runs, *cut.covered)))
        tokens = sum([self.costs[place] for place in self.visible.groups_with(rows)])
        return merged, rows, tokens + sum([one.tokens for one in merged])

    def proposal(self, cut: Cut, answer: Summary) -> Proposal:
        """The proposal that puts ``answer`` in place of everything that ``cut`` takes out."""
        merged, rows, _ = self.taken(cut)
        runs = unite_runs([*cut.runs, *(run for one in merged for run in one.stands_for)])
        depth = 1 + max([one.depth for one in merged], default=0)
        quoted = numbers_in([run for one in merged for run in one.demands])
        added, demands = demands_to_add(answer, self._room_for_demands, quoted)
        message = summary_message(answer, runs, depth, added)
        anchor = self._anchor(rows)
        new = NewInsertion("summary", message, anchor, runs, depth, demands)
        gone = {self.visible.messages[row].number for row in rows}
        kept = [
            # An insertion before a message that leaves now comes before the message's summary.
            msgspec.structs.replace(one, before=anchor) if one.before in gone else one
            for one in self.visible.insertions
            if one not in merged
        ]
        return Proposal(self._dispositions(rows), insertions=(new,), kept_insertions=tuple(kept))

    def _anchor(self, rows: frozenset[int]) -> int | None:
        """The message before which the summary is put: the first that stays after ``rows``.

        None (the start) where no message stays after them, and where a round without all its
        results stays before that place: late results may still change the order after such a
        round, so the rules allow no insertion there.
        """
        starts = [group.rows[0] for group in self.working_set.groups if not group.orphan]
        last_start = max(start for start in starts if start in rows)
        behind = next((start for start in starts if start > last_start and start not in rows), None)
        pending = [
            group.rows[0]
            for group in self.working_set.groups
            if group.pending and group.rows[0] not in rows
        ]
        if behind is None or (pending and pending[-1] < behind):
            return None
        return self.visible.messages[behind].number

    def _dispositions(self, rows: frozenset[int]) -> dict[int, tuple[Disposition, str]]:
        decided: dict[int, tuple[Disposition, str]] = {}
        strays = {row for row in self.working_set.orphans if row < max(rows)} - self.head
        for row, ref in enumerate(self.visible.messages):
            if row in rows:
                decided[ref.number] = ("summarised", "summary")
            elif row in strays:
                # A result without a call was in no request, and no provider accepts it, so the
                # summarizer does not get it, either.
                decided[ref.number] = ("dropped", "old_round")
            else:
                decided[ref.number] = ("shortened" if ref.shortened else "kept", self._reason(row))
        return decided

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
        if row in visible.open_round:
            return "open_round"
        return "same_round" if row in self.head or row in self.said else "recent"


def _goal(visible: Visible, budget: Budget, state: PolicyState) -> int:
    """Tokens to come down to.

    A compaction that was requested by hand has to reduce the view even where it is below the
    target: to half of its size.
    """
    if state.trigger == "manual":
        return max(1, min(budget.target, visible.tokens // 2))
    return budget.target


def _check_answer(scene: _Scene, cut: Cut, answer: Summary) -> Proposal:
    estimator, replaced = scene.visible.estimator, scene.taken(cut)[2]
    check_length(answer.text, cut.most, estimator)
    proposal = scene.proposal(cut, answer)
    tokens = insertion_tokens(proposal.insertions[0], estimator)
    if tokens >= replaced:
        raise UnfitSummary(
            f"the summary takes {tokens} tokens; expected less than the {replaced} of what it "
            "stands for"
        )
    if scene.crowds_out(proposal):
        raise UnfitSummary(
            f"the summary takes {tokens} tokens; the budget of {scene.budget.tokens} has no room "
            "for it beside what must stay"
        )
    return proposal


def _cut_of(key: str) -> Cut | None:
    try:
        return msgspec.json.decode(key.removeprefix("summary "), type=Cut)
    except msgspec.DecodeError:
        return None


def _place(one: InsertionRef) -> tuple[int, int]:
    return one.position, one.index
