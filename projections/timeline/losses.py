"""The losses that are suspected at the requests of a recorded session.

Invariant: one pass over the views, each as its difference from the one before, so the work grows
with what the requests added, and not with the session for each loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple, cast

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


class _Report(NamedTuple):
    """A request with a report, and how many first entries its view shares with earlier ones.

    ``kept`` of them were in every view since the report before, ``kept_in_turn`` in every view
    since the first one of that report's turn.
    """

    request: ReportedRequest
    kept: int
    kept_in_turn: int


def suspected_losses(state: TimelineState) -> tuple[SuspectedLoss, ...]:
    """The losses that are suspected at the requests so far, in order."""
    found: list[SuspectedLoss] = []
    before: ReportedRequest | None = None
    entries: list[int] = []
    for now in _reported(state, entries):
        if before is not None:
            first = now.kept if before.turn == now.request.turn else now.kept_in_turn
            loss = suspect(before, now.request, partial(_shown, state, entries, first))
            found += [] if loss is None else [loss]
        before = now.request
    return tuple(found)


def _reported(state: TimelineState, entries: list[int]) -> Iterator[_Report]:
    """Each request with a report; ``entries`` are those of its view while it is looked at."""
    prompts = dict(state.audit.sizes.reports)
    cached = {one.position: one.read for one in state.extras.cached}
    models = dict(state.audit.models)
    anchored = {one.position: one.calibrated for one in state.audit.sizes.requests}
    sent = dict(state.audit.sent)
    breaks: frozenset[Break] = frozenset()
    turn, turn_from, reports = None, -1, 0
    kept = kept_in_turn = own_turn = 0
    for row, (keep, add, _) in zip(state.audit.requests, state.views.shown, strict=True):
        entries[keep:] = views.ids_of(add)
        kept, kept_in_turn, own_turn = min(kept, keep), min(kept_in_turn, keep), min(own_turn, keep)
        breaks |= frozenset(cast("tuple[Break, ...]", row.breaks))
        if row.turn != turn:
            turn, turn_from, own_turn = row.turn, row.position, len(entries)
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
            yield _Report(request, kept, kept_in_turn)
            kept, kept_in_turn = len(entries), own_turn
            reports += 1
            breaks = frozenset()


def _shown(state: TimelineState, entries: list[int], first: int) -> ShownMessages:
    """The messages of a view; all but the ``first`` entries may be later than the report before."""
    unanswered: dict[int, int] = {}
    later = entries[first:]
    for one in later:
        extra = state.views.extras[-1 - one] if one < 0 else None
        if extra is not None and extra.kind == "synthetic" and extra.number is not None:
            unanswered[extra.number] = unanswered.get(extra.number, 0) + extra.tokens
    return ShownMessages(_messages(state, entries), unanswered, tuple(_messages(state, later)))


def _messages(state: TimelineState, entries: Iterable[int]) -> Iterator[MessageRef]:
    for one in entries:
        extra = state.views.extras[-1 - one] if one < 0 else None
        if extra is None:
            yield state.changes.origins[one].ref
        elif extra.kind != "synthetic" and extra.number is not None:
            yield state.changes.origins[extra.number].ref
