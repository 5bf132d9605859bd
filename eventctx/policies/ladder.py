"""The ladder: the cheapest loss first, each step only as far as needed.

Old tool results are shortened, then old arguments; then old tool rounds and answers are dropped;
then old user messages for which a quarter of the budget has no room (``persons_words``) are cut to
their beginning and their demands, or dropped. All others stay whole: only the budget can cut them,
in ``fit``. Rows that the policy protects (the most recent rows, the last tool results) are left
alone as long as that suffices. Protection shrinks in ``STEPS`` steps; the same steps are then taken
inside a tool loop that is still open, so that the loop is cut last. The names of the settings are
those of Amplifier's context-simple; there, as here, the reduction stops at the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

import msgspec

from eventctx.messages.shorten import MARKER_CHARACTERS, Limit
from eventctx.messages.tool_rounds import Group
from eventctx.policies.constraints import Count, Share, check
from eventctx.policies.fit import line_to_drop_to
from eventctx.policies.policy import Budget, PolicyState, Proposal, Visible
from eventctx.policies.proposals import PersonsWords, persons_words
from eventctx.policies.working_set import WorkingSet, begin_reduction

PROTECTION: Final = (1.0, 0.6, 0.3, 0.0)
"""The part of ``protected_recent`` and ``protected_tool_results`` that holds in each step."""

STEPS: Final = len(PROTECTION)
NEVER: Final = 2 * STEPS
"""The step of rows that are always protected: after all steps outside and inside the loop."""


class Ladder(msgspec.Struct, frozen=True):
    """Settings of the ladder.

    ``protected_recent`` is the share of the conversation's rows at its end that is left alone,
    ``protected_tool_results`` how many of the last tool results are, ``truncate_chars`` what
    stays of an old result, of old arguments or of an old user message, in characters.
    """

    protected_recent: Share = 0.3
    protected_tool_results: Count = 5
    truncate_chars: Count = 250
    name: str = "ladder"
    version: int = 3

    max_messages: ClassVar[int | None] = None
    """The ladder counts tokens, not messages."""

    def __post_init__(self) -> None:
        check(self)

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        """Dispositions of every visible message; insertions stay as they are."""
        working_set = begin_reduction(visible, budget)
        words = persons_words(visible, budget)
        steps = self._steps(visible, working_set, words)
        cut: list[int] = []
        for number, step in enumerate(steps):
            if working_set.total <= budget.target:
                break
            inside = number >= STEPS and state.trigger != "manual"
            if inside and working_set.total <= line_to_drop_to(budget):
                break  # a cut inside the open loop loses its thinking, so the target can wait
            cut += self._climb(working_set, step, budget.target)
            if number % STEPS == STEPS - 1:
                _drop_words(working_set, steps[: number + 1], words, budget.target)
        # Only now, because many of these rows may have been dropped in a later step.
        working_set.note(cut, Limit(prose=self.truncate_chars), "old_words")
        return _explain(visible, working_set, words)

    def _steps(self, visible: Visible, working_set: WorkingSet, words: PersonsWords) -> list[_Step]:
        """The rows that each step frees: first steps outside the open loop, then inside it."""
        facts = visible.facts
        freed_at = self._steps_of_rows(visible)
        for row in visible.open_loop:
            freed_at[row] += STEPS
        for row in (*visible.protected, *visible.open_round):
            freed_at[row] = NEVER
        # The last list holds rows that are never freed.
        steps = [_Step([], [], [], []) for _ in range(NEVER + 1)]
        for group, cost in zip(working_set.groups, working_set.costs(), strict=True):
            rows = group.rows
            at = freed_at[rows[0]] if len(rows) == 1 else max([freed_at[row] for row in rows])
            step = steps[at]
            step.rows.extend(rows)
            humans = [row for row in rows if facts[row].human and row not in words.pairs]
            if humans:
                step.words.extend(
                    [row for row in humans if row in words.short or row not in words.rows]
                )
            else:
                step.rounds.append(group)
                step.costs.append(cost)
        return steps[:NEVER]

    def _steps_of_rows(self, visible: Visible) -> list[int]:
        """The step at which each row is no longer protected."""
        conversation, facts = visible.conversation, visible.facts
        results = [row for row in conversation if facts[row].answers]
        freed_at = [0] * len(facts)
        for step, part in enumerate(PROTECTION, start=1):
            recent = int(len(conversation) * self.protected_recent * part)
            last = int(self.protected_tool_results * part)
            for row in conversation[len(conversation) - recent :]:
                freed_at[row] = step
            for row in results[len(results) - last :] if last else ():
                freed_at[row] = step
        task = next((row for row in visible.spoken_by_people if facts[row].kind != "system"), None)
        if task is not None:
            freed_at[task] = STEPS - 1
        return freed_at

    def _climb(self, working_set: WorkingSet, step: _Step, target: int) -> list[int]:
        """Reduce the rows of a step, as far as needed; returns the rows whose words are cut."""
        savings = [working_set.saving_words(row, self.truncate_chars) for row in step.words]
        rounds = sum(step.costs)
        if working_set.total - rounds - sum(savings) <= target:
            self._shorten(working_set, step, target)
        else:
            # All rounds of the step must go, so shortening them first would be wasted work.
            working_set.drop_all(step.rounds, "old_round", rounds)
        cut: list[int] = []
        for row, saving in zip(step.words, savings, strict=True):
            if working_set.total <= target:
                break
            if saving:
                working_set.free(row, saving)
                cut.append(row)
        return cut

    def _shorten(self, working_set: WorkingSet, step: _Step, target: int) -> None:
        """Shorten old results, then old arguments; drop the oldest rounds where that is too little.

        Shortening every row first and dropping then would give the same view. This order saves
        the work of shortening rows that are dropped.
        """
        least = self.truncate_chars
        saved = {row: working_set.saving(row, least) for row in step.rows}
        total = working_set.total - sum(saved.values())
        for group, cost in zip(step.rounds, step.costs, strict=True):
            if total <= target:
                break
            total -= cost - sum([saved[row] for row in group.rows])
            working_set.drop(group, "old_round", cost)
        left = [row for row in step.rows if working_set.here[row]]
        for row in left:
            if working_set.total <= target:
                return
            outcome = working_set.messages[row].facts.outcome
            if outcome > least:
                kept = _still_room(working_set, outcome, target, least)
                working_set.shorten(row, Limit(outcome=kept), "old_result")
        for row in left:
            if working_set.total <= target:
                return
            if working_set.messages[row].facts.arguments > least:
                working_set.shorten(row, Limit(arguments=least), "old_arguments")


class _Step(NamedTuple):
    """The rows that one step frees.

    ``rounds`` are those without a person's words, or with a question that goes with its answer;
    ``costs`` are the tokens that dropping each would free, ``words`` the rows with other words.
    """

    rows: list[int]
    rounds: list[Group]
    costs: list[int]
    words: list[int]


def _still_room(working_set: WorkingSet, characters: int, target: int, least: int) -> int:
    """Characters of a result that may stay: as many as the target allows, at least ``least``."""
    surplus = working_set.total - target
    freed = surplus * working_set.estimator.outcome // 10 + 1 + MARKER_CHARACTERS
    return max(least, characters - freed)


def _drop_words(
    working_set: WorkingSet, steps: Sequence[_Step], words: PersonsWords, target: int
) -> None:
    """Drop the old user messages that had no room, once every other row of the steps is reduced."""
    rows = {row for step in steps for row in step.words}
    for group in working_set.groups:
        if working_set.total <= target:
            return
        if words.rows.keys().isdisjoint(group.rows) and not rows.isdisjoint(group.rows):
            working_set.drop(group, "old_words")


def _explain(visible: Visible, working_set: WorkingSet, words: PersonsWords) -> Proposal:
    decided, open_round = working_set.decided, visible.open_round
    for row in visible.protected.union(open_round, words.rows):
        number = visible.messages[row].number
        if decided[number][1] == "fits":
            reason = words.rows.get(row, "latest")
            reason = "open_round" if row in open_round else reason
            reason = "latest_human" if row == visible.latest_human else reason
            decided[number] = (decided[number][0], reason)
    return Proposal(decided, working_set.limits, kept_insertions=tuple(visible.insertions))
