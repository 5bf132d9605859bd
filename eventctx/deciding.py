"""Deciding a compaction for a live session: ask the policy, fetch texts, make the two records."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from eventctx import events
from eventctx.compaction import Completed, changes_nothing, complete, outline, texts_needed
from eventctx.events import Trigger
from eventctx.identity import new_span_id
from eventctx.live import LiveSession
from eventctx.plan import Plan
from eventctx.policies.fit import Fitted
from eventctx.policies.policy import Budget, Policy
from eventctx.projections import request_view
from eventctx.projections.request_view import ViewState
from eventctx.record import Draft, place
from eventctx.store import Address
from eventctx.tokens import BY_KIND
from eventctx.turns import Scope, scope_of


class CompactionResult(int):
    """What ``compact()`` returns: the tokens saved, as an int, and the counts behind it."""

    outcome: events.Outcome
    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int

    @classmethod
    def of(cls, event: events.PostCompact) -> CompactionResult:
        """The result that a compaction's record tells."""
        result = cls(event.tokens_before - event.tokens_after)
        result.outcome = event.outcome
        result.tokens_before, result.tokens_after = event.tokens_before, event.tokens_after
        result.messages_before = event.messages_before
        result.messages_after = event.messages_after
        return result


class Decided(NamedTuple):
    """A compaction: its two drafts (none where nothing could change), its record, the view after.

    ``overflow`` are the parts of a floor that exceeds the budget.
    """

    drafts: tuple[Draft, ...]
    ended: events.PostCompact | None
    view: ViewState
    overflow: dict[str, int]


class Request(NamedTuple):
    """What is asked of ``decide``: the view at a version, the budget, and who asks why."""

    view: ViewState
    version: int
    budget: Budget
    trigger: Trigger
    requested_by: str | None = None


async def decide(live: LiveSession, policy: Policy, request: Request) -> Decided:
    """Decide what becomes of the view. Raises InvalidPlan, InvalidMessage, StoreError."""
    view, budget = request.view, request.budget
    started = time.perf_counter_ns()
    scope = _new_span(live)
    began = _began(policy, request)
    first = live.draft(began, scope)
    goal = budget
    while True:
        fitted = outline(view, policy, goal, request.trigger)
        if changes_nothing(view, fitted.proposal):
            return Decided((), None, view, fitted.overflow)
        plan, bodies = await _plan(live, request, fitted)
        ended = _ended(began, budget, plan, started)
        draft = live.draft(ended, scope, bodies)
        after = _after(live, request, draft)
        surplus = after.layout.tokens - budget.tokens
        if surplus <= 0 or fitted.overflow or goal.tokens == 1:
            break
        # The bound that ``fit`` counts with was too low (arguments of very many parts, an opening).
        goal = msgspec.structs.replace(goal, tokens=max(1, goal.tokens - surplus))
    # The counts after are known only once the plan is applied.
    ended = msgspec.structs.replace(
        ended,
        tokens_after=after.layout.tokens,
        messages_after=_messages(after),
        duration=time.perf_counter_ns() - started,
    )
    draft = live.draft(ended, scope, bodies)
    after = after._replace(low_water=ended.tokens_after)
    return Decided((first, draft), ended, after, fitted.overflow)


def ended_without_plan(
    live: LiveSession,
    policy: Policy,
    request: Request,
    outcome: events.Outcome,
    error: str | None = None,
) -> Decided:
    """A compaction that found nothing to do, or that failed, recorded as such."""
    scope = _new_span(live)
    began = _began(policy, request)
    ended = msgspec.structs.replace(
        _ended(began, request.budget, None, time.perf_counter_ns()), outcome=outcome, error=error
    )
    drafts = (live.draft(began, scope), live.draft(ended, scope))
    return Decided(drafts, ended, request.view, {})


async def _plan(live: LiveSession, request: Request, fitted: Fitted) -> Completed:
    wanted = texts_needed(request.view, fitted.proposal)
    texts = await live.texts([Address(ref.position, ref.index) for ref in wanted])
    by_number = {ref.number: texts[ref.position, ref.index] for ref in wanted}
    return complete(request.view, fitted.proposal, by_number, live.random)


def _after(live: LiveSession, request: Request, draft: Draft) -> ViewState:
    # pre_compact takes the next position, so the plan's record is the one after it.
    record = place(draft, live.stream, request.version + 2, -1, b"")
    return request_view.evolve(request.view, record)


def _new_span(live: LiveSession) -> Scope:
    around = scope_of(live.stream)
    return msgspec.structs.replace(
        around, span_id=new_span_id(live.random), parent_span_id=around.span_id
    )


def _messages(view: ViewState) -> int:
    return len(view.layout.refs) - view.layout.omitted


def _began(policy: Policy, request: Request) -> events.PreCompact:
    return events.PreCompact(
        trigger=request.trigger,
        strategy=policy.name,
        strategy_version=policy.version,
        tokens=request.view.layout.tokens,
        messages=_messages(request.view),
        budget=request.budget.tokens,
        threshold=request.budget.threshold,
        requested_by=request.requested_by,
    )


def _ended(
    began: events.PreCompact, budget: Budget, plan: Plan | None, started: int
) -> events.PostCompact:
    return events.PostCompact(
        outcome="skipped" if plan is None else "applied",
        trigger=began.trigger,
        strategy=began.strategy,
        strategy_version=began.strategy_version,
        tokens_before=began.tokens,
        tokens_after=began.tokens,
        messages_before=began.messages,
        messages_after=began.messages,
        estimator=BY_KIND.name,
        budget=began.budget,
        threshold=began.threshold,
        target=budget.target,
        plan=plan,
        duration=time.perf_counter_ns() - started,
        requested_by=began.requested_by,
    )
