"""From a view and a policy to a plan that can be recorded; pure, texts are passed in.

Three steps, so that the caller can fetch texts in between: ``outline`` decides on references,
``texts_needed`` names the messages to shorten, ``complete`` makes their bodies and the plan.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from eventctx.codec import decode_body, encode_message
from eventctx.events import Trigger
from eventctx.messages import encode_facts, read_facts
from eventctx.plan import Disposition, Insertion, Plan, Run, Shortening
from eventctx.policies import rules
from eventctx.policies.fit import Fitted, fit
from eventctx.policies.policy import Budget, Policy, PolicyState, Proposal, Visible
from eventctx.projections.request_view import ViewState
from eventctx.record import Body, make_body
from eventctx.refs import MessageRef
from eventctx.shorten import shorten

Salt = Callable[[int], bytes]


class Completed(NamedTuple):
    """A plan with the bodies of its record."""

    plan: Plan
    bodies: tuple[Body, ...]


def visible_of(state: ViewState) -> Visible:
    """What a policy is shown of a view."""
    layout = state.layout
    return Visible(list(layout.refs), layout.insertions, state.pins, layout.tokens)


def outline(state: ViewState, policy: Policy, budget: Budget, trigger: Trigger) -> Fitted:
    """The policy's proposal, checked and fitted. Raises InvalidPlan."""
    visible = visible_of(state)
    proposal = policy.propose(visible, budget, PolicyState(trigger, state.compactions))
    rules.check(visible, proposal)
    fitted = fit(visible, proposal, budget)
    rules.check(visible, fitted.proposal)
    return fitted


def changes_nothing(state: ViewState, proposal: Proposal) -> bool:
    """Whether the view would be the same as it is."""
    return (
        not proposal.limits
        and not proposal.insertions
        and len(proposal.kept_insertions) == len(state.layout.insertions)
        and all(
            disposition in ("kept", "shortened")
            for disposition, _ in proposal.dispositions.values()
        )
    )


def texts_needed(state: ViewState, proposal: Proposal) -> list[MessageRef]:
    """References of the messages whose bodies ``complete`` needs."""
    return [ref for ref in state.layout.refs if ref.number in proposal.limits]


def complete(
    state: ViewState,
    proposal: Proposal,
    texts: Mapping[int, bytes | None],
    salt: Salt,
) -> Completed:
    """The plan, with runs over the whole transcript, and the bodies that it refers to.

    ``texts`` maps message numbers to the bodies now in view; an erased one (None) stays as it is.
    """
    bodies: list[Body] = []
    shortened: list[Shortening] = []
    dispositions = dict(proposal.dispositions)
    for ref in state.layout.refs:
        number = ref.number
        text = texts.get(number)
        if number in proposal.limits and text is not None:
            copy = shorten(decode_body(text), number, proposal.limits[number])
            shortened.append(Shortening(number, len(bodies)))
            bodies.append(body_of(copy, salt))
        elif ref.shortened and dispositions[number][0] == "shortened":
            shortened.append(Shortening(number, ref.index, ref.position))
        elif dispositions[number][0] == "shortened":
            dispositions[number] = ("kept", dispositions[number][1])
    insertions = [
        Insertion(one.kind, one.index, one.position, one.before, one.stands_for)
        for one in proposal.kept_insertions
    ]
    for new in proposal.insertions:
        insertions.append(Insertion(new.kind, len(bodies), None, new.before, new.stands_for))
        bodies.append(body_of(new.message, salt))
    plan = Plan(
        through=state.next_number - 1,
        runs=_all_runs(state, dispositions),
        shortened=tuple(shortened),
        insertions=tuple(insertions),
    )
    return Completed(plan, tuple(bodies))


def body_of(message: object, salt: Salt) -> Body:
    """A new body for ``message``. Raises InvalidMessage."""
    data = encode_message(message)
    return make_body(data, encode_facts(read_facts(message)), salt)  # type: ignore[arg-type]


def _all_runs(
    state: ViewState, dispositions: Mapping[int, tuple[Disposition, str]]
) -> tuple[Run, ...]:
    """Runs over every number: what is out of view keeps the disposition it had."""
    numbers = sorted(dispositions)
    pieces = [Run(number, number, *dispositions[number]) for number in numbers]
    for run in state.plan.runs if state.plan is not None else ():
        if run.disposition in ("summarised", "dropped", "merged"):
            pieces += _around(run, numbers)
    pieces.sort(key=lambda piece: piece.first)
    joined: list[Run] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is not None and (last.disposition, last.reason) == (
            piece.disposition,
            piece.reason,
        ):
            joined[-1] = Run(last.first, piece.last, piece.disposition, piece.reason)
        else:
            joined.append(piece)
    return tuple(joined)


def _around(run: Run, numbers: Sequence[int]) -> list[Run]:
    """What is left of ``run`` when these (rising) numbers are taken out of it."""
    left: list[Run] = []
    first = run.first
    for number in numbers[bisect_left(numbers, first) : bisect_right(numbers, run.last)]:
        if first < number:
            left.append(Run(first, number - 1, run.disposition, run.reason))
        first = number + 1
    if first <= run.last:
        left.append(Run(first, run.last, run.disposition, run.reason))
    return left
