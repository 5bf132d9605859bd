"""Policies of other programs, as presets: they are here for compatibility.

Each puts together the same steps: rows that stay in any case, then the rest by age or by score,
as far as it fits; the rules of a view add what must not go (``proposals.decisions``), and ``fit``
reduces what is still too much. New sessions are better served by ``workset`` or ``summarize``
(docs/reference/compatibility-policies.md).

- ``simple``: the last ten messages, without duplicates (the README of Amplifier's context-simple).
- ``truncate``: the last messages or turns ("Simple Truncation" of the context contract; "recent
  messages (last 3-5 turns)" of the orchestrator specification).
- ``importance`` ("smart"): the best rounds by recency, importance and size.
- ``token-budget`` has a module of its own, as its strategy is also a function without a session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.messages.facts import Facts
from eventctx.messages.tool_rounds import Group
from eventctx.policies.constraints import AtLeastOne, Count, Share, check
from eventctx.policies.fit import line_to_drop_to
from eventctx.policies.policy import (
    Ask,
    AskScores,
    Budget,
    PolicyState,
    Proposal,
    Scores,
    Visible,
)
from eventctx.policies.proposals import Decisions, decisions, persons_words
from eventctx.policies.working_set import WorkingSet, begin_reduction
from eventctx.projections.view.refs import MessageRef

# -- the last messages ---------------------------------------------------------------------------


class Simple(msgspec.Struct, frozen=True):
    """Keep system messages and the ``keep_recent`` last messages of the conversation.

    Messages without tools are de-duplicated by role and first 100 characters, but for what people
    said. Of duplicates the last one stays, so that order and recency survive.
    """

    keep_recent: AtLeastOne = 10
    max_messages: AtLeastOne | None = None
    name: str = "simple"
    version: int = 4

    def __post_init__(self) -> None:
        check(self)
        _check_counts(self.keep_recent, self.max_messages)

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        """Dispositions of every visible message; insertions stay as they are."""
        most = _at_most(self.max_messages, state)
        kept = self.keep_recent if most is None else min(self.keep_recent, most)
        recent = visible.conversation[-kept:]
        words = persons_words(visible, budget)
        decided = decisions(visible, dict.fromkeys(recent, "recent"), words=words)
        said = {visible.messages[row].number for row in words.rows}
        _merge_duplicates(visible.messages, decided, visible.pins | said)
        return Proposal(decided, kept_insertions=tuple(visible.insertions))


class Truncate(msgspec.Struct, frozen=True):
    """Keep system messages and the end of the conversation.

    These are the last ``keep_recent`` messages or, where ``keep_turns`` is given, the last
    ``keep_turns`` turns instead, however long they are; a turn begins at a human message. Above
    ``max_messages`` messages a compaction is due whatever their size. It leaves at most half as
    many, and more only to keep a round whole.
    """

    keep_recent: AtLeastOne = 50
    keep_turns: AtLeastOne | None = None
    max_messages: AtLeastOne | None = None
    name: str = "truncate"
    version: int = 3

    def __post_init__(self) -> None:
        check(self)
        if self.keep_turns is None:  # else nothing ties the two numbers of messages together
            _check_counts(self.keep_recent, self.max_messages)

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        """Dispositions of every visible message; insertions stay as they are."""
        rows = visible.conversation
        if self.keep_turns is None:
            rows = rows[-self.keep_recent :]
        else:
            rows = last_turns(visible.messages, rows, self.keep_turns)
        most = _at_most(self.max_messages, state)
        rows = rows if most is None else rows[-most:]
        words = persons_words(visible, budget)
        decided = decisions(visible, dict.fromkeys(rows, "recent"), words=words)
        return Proposal(decided, kept_insertions=tuple(visible.insertions))


def last_turns(messages: Sequence[MessageRef], rows: list[int], turns: int) -> list[int]:
    """Those of ``rows`` that belong to the last ``turns`` turns; all where there are fewer turns.

    A turn begins at a human message.
    """
    begins = [place for place, row in enumerate(rows) if messages[row].facts.human]
    return rows if len(begins) < turns else rows[begins[-turns] :]


def _check_counts(keep_recent: int, max_messages: int | None) -> None:
    """Raise InvalidSetting for a limit below what is to be kept."""
    if max_messages is not None and max_messages < keep_recent:
        raise InvalidSetting(
            f"max_messages: expected an int from keep_recent ({keep_recent}), found {max_messages}"
        )


def _at_most(max_messages: int | None, state: PolicyState) -> int | None:
    """The most messages that may stay: half of ``max_messages``; None where it is no trigger."""
    if state.trigger != "max_messages" or max_messages is None:
        return None
    # Only half of the limit, because with more the next message would exceed it again.
    return max(1, max_messages // 2)


def _merge_duplicates(
    messages: Sequence[MessageRef], decided: Decisions, staying: frozenset[int]
) -> None:
    """Merge messages into a later one with the same beginning, but for those of ``staying``."""
    seen: set[bytes] = set()
    for ref in reversed(messages):
        facts = ref.facts
        stays = decided[ref.number][0] in ("kept", "shortened")
        with_tools = facts.calls or facts.results or facts.kind in ("result", "system")
        # Items of one Responses answer belong to a round even where they hold no call.
        if not stays or with_tools or facts.dialect == "responses" or ref.number in staying:
            continue
        if not facts.prose:
            continue
        if facts.mark in seen:
            decided[ref.number] = ("merged", "duplicate")
        seen.add(facts.mark)


# -- the best rounds -----------------------------------------------------------------------------

HUMAN: Final = 1.0
ANSWER: Final = 0.7
CALL: Final = 0.4
RESULT: Final = 0.3
OTHER: Final = 0.2
"""The importance of a message by its author. Only people state the task; an answer holds findings
and decisions; a call shows what was done; a result can be had again by calling again; a harness
adds its texts again by itself. Facts do not show whether a result is a failure."""

HALF_TOKENS: Final = 1_000
"""A round of so many tokens gets half of the score for small size."""

DIGITS: Final = 4
"""Scores are rounded before they are compared, so that the recorded ones explain the plan."""


class Importance(msgspec.Struct, frozen=True):
    """Keep the rounds with the best scores that fit the target, in conversation order.

    A round's score is the best of its members', because it stands or falls as one; the scores are
    recorded with the plan.
    The three weights, from 0 to 1, are the shares of recency, importance and size in a score.
    ``keep_recent`` rows at the end of the conversation stay whatever their score. ``scorer`` is
    ``builtin`` (importance by author) or ``model`` (the scorer that the session was given).
    """

    recency_weight: Share = 0.4
    importance_weight: Share = 0.5
    size_weight: Share = 0.1
    keep_recent: Count = 6
    scorer: Literal["builtin", "model"] = "builtin"
    name: str = "importance"
    version: int = 3

    def __post_init__(self) -> None:
        check(self)
        if not (self.recency_weight or self.importance_weight or self.size_weight):
            raise InvalidSetting(
                "recency_weight, importance_weight, size_weight: expected one above 0, found all 0"
            )

    @property
    def max_messages(self) -> int | None:
        """The policy counts tokens, not messages."""
        return None

    @property
    def needs_scorer(self) -> bool:
        """Whether a session with this policy must be given a scorer."""
        return self.scorer == "model"

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal | Ask:
        """Dispositions of every visible message, or a question for scores; insertions stay."""
        working_set = begin_reduction(visible, budget)
        if working_set.total <= budget.target:
            return Proposal(
                working_set.decided, working_set.limits, kept_insertions=tuple(visible.insertions)
            )
        words = persons_words(visible, budget)
        spoken = words.rows
        for guarded in self._guards(visible, spoken):
            here = visible.groups_with(guarded)
            free = [group for place, group in enumerate(visible.groups) if place not in here]
            left = working_set.total - sum(working_set.cost(group) for group in free)
            if left <= line_to_drop_to(budget):
                break
        scorable = [group for group in free if not group.orphan]
        given: Mapping[int, float] = {}
        if self.scorer == "model" and scorable:
            found = next((one for one in state.answers.values() if isinstance(one, Scores)), None)
            if found is None:
                return _question(visible, scorable)
            given = found.by_number
        scores = self._scores(visible, working_set, scorable, given)
        for question, answer in words.pairs.items():
            one, other = (visible.groups[visible.group_at[row]] for row in (question, answer))
            if one in scores and other in scores:
                scores[other] = scores[one]
        _choose(working_set, free, scores, budget.target - left)
        return _proposal(visible, working_set, free, guarded, scores, spoken)

    def _guards(self, visible: Visible, spoken: Iterable[int]) -> Iterator[frozenset[int]]:
        """Sets of rows that stay, each smaller than the one before.

        The second gives up the open tool loop, the third gives up the recent rows, too.
        """
        recent = frozenset(visible.conversation[-self.keep_recent :] if self.keep_recent else ())
        fixed = visible.protected.union(visible.open_round, spoken)
        yield fixed | recent | visible.open_loop
        yield fixed | recent
        yield fixed

    def _scores(
        self,
        visible: Visible,
        working_set: WorkingSet,
        groups: list[Group],
        given: Mapping[int, float],
    ) -> dict[Group, float]:
        """The score of every round, from 0 to 1: a weighted mean of three parts, each 0 to 1.

        Recency is the place in the conversation, from 0 for the first to 1 for the last message.
        Importance is the model's score, or the built-in one for messages that it did not score.
        For size a round of t tokens gets HALF_TOKENS / (HALF_TOKENS + t). Only sums, products and
        quotients are used: they give the same result on every machine, which powers and
        logarithms need not.
        """
        total = self.recency_weight + self.importance_weight + self.size_weight
        last = max(1, len(visible.messages) - 1)
        scores: dict[Group, float] = {}
        for group in groups:
            best = 0.0
            for row in group.rows:
                ref = visible.messages[row]
                importance = given.get(ref.number, importance_of(ref.facts))
                best = max(
                    best, self.recency_weight * row / last + self.importance_weight * importance
                )
            brief = HALF_TOKENS / (HALF_TOKENS + working_set.cost(group))
            scores[group] = round((best + self.size_weight * brief) / total, DIGITS)
        return scores


def importance_of(facts: Facts) -> float:
    """The importance of a message by its author, from 0 to 1."""
    if facts.human:
        return HUMAN
    if facts.kind == "assistant":
        return ANSWER if facts.prose and not facts.calls else CALL
    return RESULT if facts.kind == "result" else OTHER


def _question(visible: Visible, groups: list[Group]) -> AskScores:
    numbers = sorted(visible.messages[row].number for group in groups for row in group.rows)
    # A compaction has one question: messages added meanwhile get the built-in score.
    return AskScores(f"scores {numbers[0]}-{numbers[-1]}", tuple(numbers))


def _choose(
    working_set: WorkingSet, free: list[Group], scores: Mapping[Group, float], room: int
) -> None:
    """Drop the rounds that do not fit into ``room`` tokens, best score first.

    Of equal scores the newer round comes first. A round that is too large for the room left does
    not keep a smaller one with a lower score out.
    """
    best = sorted(scores, key=lambda group: (scores[group], group.rows[0]), reverse=True)
    chosen: set[Group] = set()
    for group in best:
        cost = working_set.cost(group)
        if cost <= room:
            room -= cost
            chosen.add(group)
    for group in free:
        if group not in chosen:
            working_set.drop(group, "unimportant")


def _proposal(
    visible: Visible,
    working_set: WorkingSet,
    free: list[Group],
    guarded: frozenset[int],
    scores: Mapping[Group, float],
    spoken: Mapping[int, str],
) -> Proposal:
    decided = dict(working_set.decided)
    human = visible.latest_human
    judged = {row for group in free for row in group.rows}
    for row, ref in enumerate(visible.messages):
        disposition, reason = decided[ref.number]
        if reason == "fits":
            if row == human:
                reason = "latest_human"
            elif row in spoken:
                reason = spoken[row]
            elif row in judged:
                reason = "important"
            else:
                reason = "protected" if row in guarded else "same_round"
            decided[ref.number] = (disposition, reason)
    by_number = {
        visible.messages[row].number: score for group, score in scores.items() for row in group.rows
    }
    return Proposal(
        decided,
        working_set.limits,
        kept_insertions=tuple(visible.insertions),
        scores=by_number,
    )
