"""From a view and a policy to a plan that can be recorded. Pure: texts are passed in.

A plan is made in three steps, so that the caller can read texts from the store in between.
``outline`` lets the policy decide on references and fits its proposal to the budget.
``texts_needed`` names the messages that have to be shortened. ``complete`` shortens their bodies
and makes the plan.

Invariant: the runs of a plan cover every message that was in view, once, and every body that the
plan refers to is in the log already or among ``Completed.bodies``. So the record of a compaction
is enough to derive its view again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from eventctx.errors import InvalidPlan
from eventctx.log.plan import (
    PROVIDER,
    Disposition,
    Insertion,
    Plan,
    Shortening,
    runs_by_number,
)
from eventctx.log.record import Body, make_body
from eventctx.messages.encoding import decode_body
from eventctx.messages.shorten import shorten
from eventctx.messages.thinking import BY_MODEL, ThinkingRule
from eventctx.policies import advisers, rules
from eventctx.policies.fit import Fitted, fit
from eventctx.policies.policy import Ask, Budget, Policy, PolicyState, Proposal, Visible
from eventctx.projections.view.layout import made_up_tokens
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.request_view import ViewState

MakeBody = Callable[[Any], Body]
Salt = Callable[[int], bytes]


class Completed(NamedTuple):
    """A plan with the bodies of its record; ``scores`` is the index of the body that holds them."""

    plan: Plan
    bodies: tuple[Body, ...]
    scores: int | None


def visible_of(
    view: ViewState, pins: frozenset[int] = frozenset(), thinking: ThinkingRule = BY_MODEL
) -> Visible:
    """The part of a view that a policy sees; ``pins`` are added to the session's own.

    ``thinking`` is the rule for the model that will read the view.
    """
    layout = view.layout
    return Visible(
        layout.in_play(),
        _movable(view),
        view.pins | pins,
        layout.tokens,
        view.estimator,
        made_up_tokens(layout),
        view.spoken,
        view.gone,
        thinking.generation == "manual",
    )


def _movable(view: ViewState) -> tuple[InsertionRef, ...]:
    """The insertions that a policy may remove: all but a system prompt, which is the host's."""
    return tuple([one for one in view.layout.insertions if one.kind != "system_prompt"])


def outline(
    visible: Visible,
    policy: Policy,
    budget: Budget,
    state: PolicyState,
    texts: Sequence[str] = (),
) -> Fitted | Ask:
    """The policy's proposal, checked and fitted, or its question.

    ``texts`` are the host's; they are left out where the floor has no room for them. Raises
    InvalidPlan for an answer that is no proposal and for a proposal that breaks a rule.
    """
    visible = advisers.remove_notice(visible)
    lowered = advisers.lower_budget(budget, texts, visible.estimator)
    proposal = policy.propose(visible, lowered, state)
    if isinstance(proposal, Ask):
        return proposal
    if not isinstance(proposal, Proposal):
        raise InvalidPlan("a policy returns a Proposal", (), f"it returned {proposal!r}"[:200])
    rules.check_form(visible, proposal)
    fitted = fit(visible, advisers.add_texts(proposal, texts), budget)
    if fitted.overflow and texts:
        fitted = fit(visible, proposal, budget)
    rules.check_rules(visible, fitted.proposal)
    rules.check_words(visible, fitted.proposal, budget)
    return fitted


def changes_nothing(view: ViewState, proposal: Proposal, most: int | None = None) -> bool:
    """Whether ``proposal`` leaves the view as it is.

    Where nothing else changes, new texts of the host are no reason to compact: those in view stay,
    unless the view has more than ``most`` tokens.
    """
    present = _movable(view)
    new = proposal.insertions
    left = [one for one in present if not advisers.is_of_host(one)]
    if most is None or view.layout.tokens > most:
        left = [*present]
    elif all(advisers.is_notice(one) for one in new):
        new = ()
    return (
        not proposal.limits
        and not new
        and len(proposal.kept_insertions) == len(left)
        and all(
            disposition in ("kept", "shortened")
            for disposition, _ in proposal.dispositions.values()
        )
    )


def texts_needed(view: ViewState, proposal: Proposal) -> list[MessageRef]:
    """References of the messages whose bodies ``complete`` needs."""
    limits = proposal.limits
    return [ref for ref in view.layout.refs if ref.number in limits] if limits else []


def complete(
    view: ViewState,
    proposal: Proposal,
    texts: Mapping[int, bytes | None],
    make: MakeBody,
    salt: Salt,
) -> Completed:
    """The plan, with runs over all messages that were in view, and the new bodies of its record.

    ``texts`` maps message numbers to the bodies that are in view now. An erased body (None) cannot
    be shortened, so its message keeps the form that it has in view. ``make`` gives a message its
    body, ``salt(n)`` returns n random bytes. Raises InvalidMessage.
    """
    bodies: list[Body] = []
    dispositions, shortened = _shorten_bodies(view, proposal, texts, make, bodies)
    insertions = [
        Insertion(
            one.kind, one.index, one.position, one.before, one.stands_for, one.depth, one.demands
        )
        for one in proposal.kept_insertions
    ]
    for new in proposal.insertions:
        insertions.append(
            Insertion(
                new.kind,
                len(bodies),
                None,
                new.before,
                new.stands_for,
                new.depth,
                new.demands,
            )
        )
        bodies.append(make(new.message))
    scores = None
    if proposal.scores:
        scores = len(bodies)
        bodies.append(_scores_body(proposal.scores, salt))
    plan = Plan(
        through=view.next_number - 1,
        runs=runs_by_number(dispositions),
        shortened=tuple(shortened),
        insertions=tuple(insertions),
    )
    return Completed(plan, tuple(bodies), scores)


def _shorten_bodies(
    view: ViewState,
    proposal: Proposal,
    texts: Mapping[int, bytes | None],
    make: MakeBody,
    bodies: list[Body],
) -> tuple[dict[int, tuple[Disposition, str]], list[Shortening]]:
    """The dispositions as they can be carried out, and the shortened copies; adds their bodies."""
    shortened: list[Shortening] = []
    dispositions = dict(proposal.dispositions)
    limits = proposal.limits
    short = {number for number, (how, _) in dispositions.items() if how == "shortened"}
    short.update(limits)
    for ref in [ref for ref in view.layout.in_play() if ref.number in short] if short else ():
        number = ref.number
        limit = limits.get(number)
        disposition, reason = dispositions[number]
        text = texts.get(number)
        if limit is not None and text is not None:
            copy = shorten(decode_body(text), number, limit, ref.facts)
            shortened.append(Shortening(number, len(bodies)))
            bodies.append(make(copy))
        elif ref.shortened and disposition == "shortened":
            shortened.append(Shortening(number, ref.index, ref.position))
        elif disposition == "shortened":
            dispositions[number] = ("kept", reason)
    return dispositions, shortened


def _scores_body(scores: Mapping[int, float], salt: Salt) -> Body:
    """Scores as a JSON list of pairs of message number and score.

    This is no message, so the body has no facts.
    """
    pairs = [(number, scores[number]) for number in sorted(scores)]
    return make_body(msgspec.json.encode(pairs), b"", salt)


# -- plans that somebody else decided ------------------------------------------------------------


def edit_plan(
    view: ViewState,
    reason: str,
    changed: Mapping[int, tuple[Disposition, str]],
    shortened: tuple[Shortening, ...] = (),
) -> Plan:
    """A plan that treats some messages so, and leaves all others and the insertions as they are.

    ``reason`` is the code of the others.
    """
    cut = {one.number for one in shortened}
    kept = [
        Shortening(ref.number, ref.index, ref.position)
        for ref in view.layout.refs
        if ref.shortened and ref.number not in cut and ref.number not in changed
    ]
    still = {one.number for one in kept}
    decided: dict[int, tuple[Disposition, str]] = {
        ref.number: changed.get(
            ref.number, ("shortened" if ref.number in still else "kept", reason)
        )
        for ref in view.layout.refs
    }
    left = {number for number, (how, _) in decided.items() if how != "dropped"}
    standing = standing_insertions(view, {one.position for one in view.layout.insertions}, left)
    insertions = [one for one in standing if one.kind != "system_prompt"]
    return Plan(
        view.next_number - 1,
        runs_by_number(decided),
        (*kept, *shortened),
        tuple(insertions),
    )


def standing_insertions(view: ViewState, positions: set[int], left: set[int]) -> list[Insertion]:
    """The insertions in the view that plans at these positions made, before what is ``left``."""
    numbers = sorted(left)

    def before(place: int | None) -> int | None:
        if place is None or place in left:
            return place
        behind = bisect_left(numbers, place)
        return numbers[behind] if behind < len(numbers) else view.next_number

    return [
        Insertion(one.kind, one.index, one.position, before(one.before), one.stands_for, one.depth)
        for one in view.layout.insertions
        if one.position in positions
    ]


def summarised_by_provider(view: ViewState, holder: int) -> Plan | None:
    """The plan after the API's own compaction, whose summary message ``holder`` has.

    System messages stay. So does what a person said before an item of OpenAI's, whose own window is
    that and the item; Anthropic's API reads nothing before its block. None if the message is not in
    view, or nothing comes before it.
    """
    decided: dict[int, tuple[Disposition, str]] = {}
    for ref in view.layout.refs:
        if ref.number == holder:
            sealed = bool(ref.facts.item)
            break
        decided[ref.number] = ("summarised", PROVIDER)
        if ref.facts.kind == "system":
            decided[ref.number] = ("kept", "system")
    else:
        return None
    for ref in view.layout.refs if sealed else ():
        if ref.facts.human and ref.number in decided:
            decided[ref.number] = ("kept", "provider_kept")
    if all(how == "kept" for how, _ in decided.values()):
        return None
    decided[holder] = ("kept", "provider_summary")
    return Plan(holder, runs_by_number(decided))
