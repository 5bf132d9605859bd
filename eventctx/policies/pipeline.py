"""The pipeline: one policy after the other, until the view is down to the target.

Each policy decides on the view that the policies before it left, so a message that one of them
hides cannot come back. Of two limits for a message the lower one holds. The insertions of all
steps are in the view.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from eventctx.errors import CompactionError, InvalidSetting
from eventctx.log.plan import Disposition
from eventctx.messages.facts import Facts
from eventctx.messages.shorten import MARKER_CHARACTERS, Limit, words_left
from eventctx.policies.policy import (
    Answer,
    Ask,
    Budget,
    Policy,
    PolicyState,
    Proposal,
    Visible,
    is_policy,
)
from eventctx.policies.proposals import persons_words, put_back_words
from eventctx.policies.rules import check
from eventctx.policies.working_set import WorkingSet, bound_tokens
from eventctx.projections.view.refs import MessageRef

_STAYS: Final = ("kept", "shortened")


class Pipeline(msgspec.Struct, frozen=True):
    """Apply ``policies`` in order until the view counts at most the budget's target.

    The steps are policies; where the pipeline itself is made by name (``policy_named``,
    ``engine.session(policy="pipeline", policies=…)``), also names, and pairs of a name and
    settings. Where a compaction is due because of the number of messages, that number must also
    be down to the limit. The key of a step's question has the step's place before it
    (``0:scores``). Raises InvalidSetting.
    """

    policies: tuple[Policy, ...] = ()
    name: str = "pipeline"
    version: int = 2

    def __post_init__(self) -> None:
        given: Any = self.policies
        if not isinstance(given, list | tuple) or not given:
            raise InvalidSetting(f"policies: expected a list of policies, found {given!r}")
        for step in given:
            if not is_policy(step):
                raise InvalidSetting(
                    f"policies: expected policies, found {step!r}; make it with policy_named()"
                )
        msgspec.structs.force_setattr(self, "policies", tuple(given))

    @property
    def max_messages(self) -> int | None:
        """The lowest limit of any step."""
        limits = [step.max_messages for step in self.policies if step.max_messages is not None]
        return min(limits, default=None)

    @property
    def needs_summarizer(self) -> bool:
        """Whether a step needs a summarizer."""
        return any(getattr(step, "needs_summarizer", False) for step in self.policies)

    @property
    def needs_scorer(self) -> bool:
        """Whether a step needs a scorer."""
        return any(getattr(step, "needs_scorer", False) for step in self.policies)

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal | Ask:
        """The joined proposal of all steps, or a step's question.

        Raises CompactionError for a step that returns neither, InvalidPlan for a step that breaks
        a rule.
        """
        joined: Proposal | None = None
        seen = visible
        for place, step in enumerate(self.policies):
            answers = _own_answers(state.answers, place)
            found = step.propose(seen, budget, msgspec.structs.replace(state, answers=answers))
            if isinstance(found, Ask):
                return msgspec.structs.replace(found, key=f"{place}:{found.key}")
            if not isinstance(found, Proposal):
                raise CompactionError(
                    f"policy {step.name!r}: expected a Proposal or a question, found "
                    f"{type(found).__name__}"
                )
            check(seen, found)
            found = put_back_words(seen, found, persons_words(seen, budget))
            joined = found if joined is None else join_proposals(joined, found)
            seen = reduce_view(seen, found)
            if self._is_enough(seen, budget, state):
                break
        assert joined is not None  # noqa: S101 - there is at least one step
        return place_insertions(visible, joined)

    def _is_enough(self, seen: Visible, budget: Budget, state: PolicyState) -> bool:
        most = self.max_messages
        if state.trigger == "max_messages" and most is not None:
            return len(seen.conversation) <= most and seen.tokens <= budget.target
        return seen.tokens <= budget.target


def reduce_view(visible: Visible, proposal: Proposal) -> Visible:
    """The view under ``proposal``, derived from facts; a shortened text counts its upper bound.

    New insertions are counted in ``tokens``, but are not among ``insertions``: they have no place
    in the log yet, so the next step cannot ask about them.
    """
    messages = []
    for ref in visible.messages:
        limit = proposal.limits.get(ref.number)
        if proposal.dispositions[ref.number][0] not in _STAYS:
            continue
        messages.append(ref if limit is None else _limit_message(ref, limit, visible))
    return Visible(
        messages,
        proposal.kept_insertions,
        visible.pins,
        WorkingSet(visible, proposal).total,
        visible.estimator,
        visible.made_up,
        visible.spoken,
        visible.gone,
        visible.manual_thinking,
    )


def _limit_message(ref: MessageRef, limit: Limit, visible: Visible) -> MessageRef:
    tokens = min(ref.tokens, bound_tokens(ref.facts, limit, visible.estimator))
    return msgspec.structs.replace(
        ref, facts=_limit_facts(ref.facts, limit), tokens=tokens, shortened=True
    )


def _limit_facts(facts: Facts, limit: Limit) -> Facts:
    """Facts of a message with the most characters that ``limit`` leaves.

    The bounds are those of ``bound_tokens``.
    """
    outcome, arguments, prose = facts.outcome, facts.arguments, facts.prose
    if limit.outcome is not None:
        outcome = min(outcome, limit.outcome + MARKER_CHARACTERS * max(1, len(facts.results)))
    if limit.arguments is not None:
        most = limit.arguments + 2 * MARKER_CHARACTERS * max(1, len(facts.calls))
        arguments = min(arguments, most)
    if limit.prose is not None:
        prose = words_left(facts, limit.prose)
    if limit.leaves_out_media(facts):
        prose += MARKER_CHARACTERS * len(facts.media)
        facts = msgspec.structs.replace(facts, media=())
    return msgspec.structs.replace(facts, outcome=outcome, arguments=arguments, prose=prose)


def join_proposals(first: Proposal, second: Proposal) -> Proposal:
    """One proposal for a view, of ``first`` for that view and ``second`` for the reduced one."""
    decided: dict[int, tuple[Disposition, str]] = dict(first.dispositions)
    limits = dict(first.limits)
    for number, (disposition, reason) in second.dispositions.items():
        limit = second.limits.get(number)
        if disposition not in _STAYS:
            limits.pop(number, None)
        elif limit is not None:
            limits[number] = _lower(limits.get(number, Limit()), limit)
        elif number in limits:
            continue  # the limit of ``first`` still holds, and its reason with it
        decided[number] = (disposition, reason)
    return Proposal(
        decided,
        limits,
        (*first.insertions, *second.insertions),
        second.kept_insertions,
        {**first.scores, **second.scores},
    )


def place_insertions(visible: Visible, proposal: Proposal) -> Proposal:
    """The proposal with every insertion at a place that the whole view allows.

    An insertion before a message that a later step drops moves to the next message that stays.
    Nothing can be inserted after a round without all its results, even where an earlier step
    dropped that round: an insertion after it moves to the start.
    """
    rows = {ref.number: row for row, ref in enumerate(visible.messages)}
    last_open = next(
        (group.rows[0] for group in reversed(visible.groups) if group.pending), len(rows)
    )
    open_places = [
        group.rows[0]
        for group in visible.groups
        if not group.orphan
        and group.rows[0] <= last_open
        and proposal.dispositions[visible.messages[group.rows[0]].number][0] in _STAYS
    ]
    insertions = []
    for one in proposal.insertions:
        if one.before is not None:
            wanted = rows[one.before]
            found = next((row for row in open_places if row >= wanted), None)
            before = None if found is None else visible.messages[found].number
            one = msgspec.structs.replace(one, before=before)
        insertions.append(one)
    return msgspec.structs.replace(proposal, insertions=tuple(insertions))


def _lower(first: Limit, second: Limit) -> Limit:
    return Limit(
        *[
            min((limit for limit in pair if limit is not None), default=None)
            for pair in zip(first, second, strict=True)
        ]
    )


def _own_answers(answers: Mapping[str, Answer], place: int) -> dict[str, Answer]:
    prefix = f"{place}:"
    return {
        key.removeprefix(prefix): answer
        for key, answer in answers.items()
        if key.startswith(prefix)
    }
