"""The losses that are suspected at the requests of a recorded session."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import cast

from eventctx.log.events import Break
from eventctx.projections.silent_loss import (
    ReportedRequest,
    ShownMessages,
    SuspectedLoss,
    suspect,
)
from eventctx.projections.timeline import views
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.view.refs import MessageRef


def suspected_losses(state: TimelineState) -> tuple[SuspectedLoss, ...]:
    """The losses that are suspected at the requests so far, in order."""
    found: list[SuspectedLoss] = []
    before: ReportedRequest | None = None
    for place, now in _reported(state):
        if before is not None:
            loss = suspect(before, now, partial(_shown_at, state, place))
            found += [] if loss is None else [loss]
        before = now
    return tuple(found)


def _reported(state: TimelineState) -> Iterator[tuple[int, ReportedRequest]]:
    """Each request with a report, and its place among all."""
    prompts = dict(state.audit.sizes.reports)
    cached = {one.position: one.read for one in state.extras.cached}
    models = dict(state.audit.models)
    anchored = {one.position: one.calibrated for one in state.audit.sizes.requests}
    sent = dict(state.audit.sent)
    breaks: frozenset[Break] = frozenset()
    turn, turn_from, reports = None, -1, 0
    for place, row in enumerate(state.audit.requests):
        breaks |= frozenset(cast("tuple[Break, ...]", row.breaks))
        if row.turn != turn:
            turn, turn_from = row.turn, row.position
        prompt = prompts.get(row.position)
        if prompt:
            at = row.position
            model = models.get(at, row.model)
            request = ReportedRequest(
                position=at,
                time=row.time,
                turn=turn,
                turn_from=turn_from,
                expected=row.tokens,
                prompt=prompt,
                cached=cached.get(at, 0),
                model=model,
                breaks=breaks,
                reports=reports if anchored.get(at) else 0,
                tools=row.tools,
                tools_counted=row.figures.tools is not None,
                untold=(sent[at][2] or 0) if at in sent else 0,
            )
            yield place, request
            reports += 1
            breaks = frozenset()


def _shown_at(state: TimelineState, place: int) -> ShownMessages:
    messages: list[MessageRef] = []
    unanswered: dict[int, int] = {}
    for one in views.expand(state.views, place):
        if one >= 0:
            messages.append(state.changes.origins[one].ref)
            continue
        extra = state.views.extras[-1 - one]
        if extra.number is None:
            continue
        if extra.kind == "synthetic":
            unanswered[extra.number] = unanswered.get(extra.number, 0) + extra.tokens
        else:
            messages.append(state.changes.origins[extra.number].ref)
    return ShownMessages(tuple(messages), unanswered)
