"""Spans that a record ends."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from eventctx.log.codec import Unknown
from eventctx.log.events import Event, PostCompact
from eventctx.log.record import Record
from eventctx.projections.flat import read
from eventctx.projections.trace import attributes as attrs
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Closing
from eventctx.projections.trace.beginning import compaction_alone
from eventctx.projections.trace.spans import OpenSpan, finish, with_event
from eventctx.projections.trace.state import (
    MAX_WAITING,
    SentRequest,
    TraceState,
    count,
    release,
    show,
)

_AROUND: Final = ("turn", "plan", "compact")
"""Families of spans with others inside."""


def close_span(
    state: TraceState, record: Record, event: Event | Unknown, trace_id: str, ends: Closing
) -> TraceState:
    """The state without the span that ``record`` ends; it is ``finished``, or waits for its usage.

    An end of no open span is shown as an event.
    """
    span = state.open.get(record.span_id or "")
    if isinstance(event, PostCompact):
        if span is None or span.family != "compact":
            state, span = compaction_alone(state, record, event, trace_id)
        # A compaction without a call to a model is recorded as a whole once it is decided: both its
        # records have about the time of its end, and its start follows from the duration.
        began = max(record.time - event.duration, state.floor)
        if event.trigger != "imported" or not event.duration:
            began = min(span.start, began)
        span = with_event(replace(span, start=began), record, event)
        if event.outcome == "applied":
            saved = event.tokens_before - event.tokens_after
            counts = {conv.TURN_COMPACTIONS: 1, conv.TURN_SAVED: saved}
            state = count(state, record.turn_id, counts)
            if event.plan is not None:
                applied = (record.position, span.trace_id, span.span_id)
                lineage = replace(state.lineage, compaction=applied)
                state = replace(state, plan=record.position, lineage=lineage)
    if span is None or span.family != ends.family:
        return show(state, record, event)
    spans = dict(state.open)
    spans.pop(span.span_id, None)
    if span.family == "turn":
        turn_id = span.turn_id
        state = release(state, lambda done: done.attributes.get(conv.TURN_ID) != turn_id)
        state, span = _show_unsent(state, span)
    if span.family in _AROUND:
        inside = [one.start + 1 for one in spans.values() if one.parent_span_id == span.span_id]
        span = replace(span, covers=max(span.covers, *inside)) if inside else span
    if span.family == "chat" and conv.REQUEST_MODEL not in span.attributes:
        # An adviser's model is known from its answer alone.
        span = replace(span, name=attrs.chat_name(ends.attributes.get(conv.RESPONSE_MODEL)))
    # A presumed end was recorded when the session went on, which may be days later.
    quiet = state.time if span.quiet_since is None else span.quiet_since
    end = quiet if ends.attributes[conv.OUTCOME] == "lost" else record.time
    if state.imported and span.family != "turn":
        # One line of a file ends a span and begins the next, so both have one time. Jaeger's
        # critical path is of spans that end before the next one begins.
        end -= 1
    done = finish(span, end, ends.status, ends.message, ends.attributes)
    around = None if done.end == end else spans.get(done.parent_span_id or "")
    if around is not None:
        spans[around.span_id] = replace(around, covers=max(around.covers, done.end))
    if span.family == "chat" and _awaits_usage(ends, span):
        answered = (*state.answered, done)
        surplus = answered[:-MAX_WAITING]
        return replace(
            state,
            open=spans,
            answered=answered[-MAX_WAITING:],
            finished=(*state.finished, *surplus),
        )
    return replace(state, open=spans, finished=(*state.finished, done))


def _awaits_usage(ends: Closing, span: OpenSpan) -> bool:
    return ends.attributes[conv.OUTCOME] == "ok" and conv.CACHE_READ_TOKENS not in span.attributes


def _show_unsent(state: TraceState, turn: OpenSpan) -> tuple[TraceState, OpenSpan]:
    """Show as events on the turn the requests that were prepared in it and never sent."""
    left: list[SentRequest] = []
    for one in state.waiting:
        if one.record.turn_id == turn.turn_id:
            turn = with_event(turn, one.record, read(one.record))
        else:
            left.append(one)
    return replace(state, waiting=tuple(left)), turn
