"""Spans that a record begins: with the request that they send, and the links that they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from eventctx.log.codec import Unknown
from eventctx.log.events import Event, PostCompact, PreCompact, ProviderRequest
from eventctx.log.ids import derive_span_id
from eventctx.log.record import Record
from eventctx.projections.trace import attributes as attrs
from eventctx.projections.trace import links, parents
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attributes
from eventctx.projections.trace.spans import OpenSpan, Span, SpanLink, begin, give_up
from eventctx.projections.trace.state import (
    MAX_WAITING,
    TraceState,
    in_compaction,
    release,
    show,
    turn_of,
)

MAX_OPEN: Final = 256
"""Most open spans of one session; beyond that, the oldest is finished as ``unfinished``."""


def open_span(
    state: TraceState,
    record: Record,
    event: Event | Unknown,
    trace_id: str,
    begins: attrs.SpanStart,
    before: int,
) -> TraceState:
    """The state with the span that ``record`` begins.

    ``before`` is the time of the turn's or span's record before it, in UTC nanoseconds.
    """
    attributes = attrs.identity(record) | begins.attributes
    spans = dict(state.open)
    start = record.time
    turn = turn_of(state, record.turn_id)
    parent = record.parent_span_id
    linked: tuple[SpanLink, ...] = ()
    if begins.family == "turn":
        attributes |= state.lineage.attributes
        state = replace(state, floor=record.time)
        for key, old in spans.items():
            if old.quiet_since is None:
                spans[key] = replace(old, quiet_since=before)
    elif isinstance(event, PreCompact):
        start = _began(record, event, before)
        state, known = _numbered(state)
        attributes |= known
    elif begins.family == "tool":
        if turn is not None and conv.AGENT_NAME in turn.attributes:
            attributes[conv.AGENT_NAME] = turn.attributes[conv.AGENT_NAME]
        parent = parents.of_tool(state.calls, record, state.open, turn)
        if parent != record.parent_span_id and record.parent_span_id is not None:
            attributes[conv.PARENT_SPAN_ID] = record.parent_span_id
            linked = links.of_tool(record, parent, trace_id)
    elif isinstance(event, ProviderRequest):
        state = replace(state, calls=parents.remember(state.calls, record))
        state = release(state, _in_parallel(record))
        state, known = take_prepared(state, record, event)
        attributes |= known
        linked = links.of_chat(state.lineage, attributes, trace_id)
    if turn is not None and (origins := links.of_child(state.lineage, turn, parent)):
        linked += origins
        spans[turn.span_id] = replace(turn, carried=True)
    span_id = record.span_id or ""
    begun = begin(record, begins, span_id, parent, trace_id, start, attributes)
    spans[span_id] = replace(begun, links=linked) if linked else begun
    if len(spans) > MAX_OPEN:
        oldest = spans.pop(next(iter(spans)))
        state = replace(state, finished=(*state.finished, give_up(oldest, before)))
    state = replace(state, open=spans, lineage=links.begun(state.lineage, record, trace_id))
    return show(state, record, event) if begins.family == "compact" else state


def compaction_alone(
    state: TraceState, record: Record, event: PostCompact, trace_id: str
) -> tuple[TraceState, OpenSpan]:
    """Begin the span of a post_compact without a pre_compact; it has all that is needed."""
    begins = attrs.opening(event)
    assert begins is not None  # noqa: S101 - a post_compact always opens
    state, known = _numbered(state)
    attributes = attrs.identity(record) | begins.attributes | known
    span_id = record.span_id
    if span_id is None or span_id in state.open:
        span_id = derive_span_id(record.stream, record.id)
    parent = record.parent_span_id
    return state, begin(record, begins, span_id, parent, trace_id, record.time, attributes)


def _numbered(state: TraceState) -> tuple[TraceState, Attributes]:
    """Count one more compaction, and say which one it is and what it found."""
    known: Attributes = {}
    if state.compactions is not None:
        number = state.compactions + 1
        state = replace(state, compactions=number)
        known[conv.COMPACTION_SEQUENCE] = number
    if state.digest is not None:
        known[conv.COMPACTION_VIEW_BEFORE] = state.digest
    return state, known


def _began(record: Record, event: PreCompact, before: int) -> int:
    """When a compaction began; ``before`` is the time of the record before it, 0 without a date.

    Files of other programs date its end alone. Nothing else happened since the record before it,
    unless a person asked for it: then the time between may be that person's.
    """
    by_person = (event.requested_by or "").endswith(":manual")
    if event.trigger != "imported" or by_person or not before:
        return record.time
    return min(before, record.time)


def take_prepared(
    state: TraceState, record: Record, event: ProviderRequest
) -> tuple[TraceState, Attributes]:
    """Find the prepared request that a model call sends: by position, else by span or iteration."""
    for one in reversed(state.waiting):
        other = one.record
        if event.prepared is not None:
            found = other.position == event.prepared
        elif other.span_id == record.span_id:
            found = True
        else:
            found = (
                record.iteration is not None
                and (other.turn_id, other.iteration) == (record.turn_id, record.iteration)
                and not in_compaction(state, record)
            )
        if found:
            rest = tuple([left for left in state.waiting if left is not one])
            sent = (*state.sent, one)[-MAX_WAITING:]
            return replace(state, waiting=rest, sent=sent), one.attributes
    for one in state.sent:
        if one.record.position == event.prepared:
            return state, one.attributes
    # A summariser's prompt is no view of the session, so the plan in force does not apply to it.
    if in_compaction(state, record):
        return state, {}
    return state, attrs.in_force(state.plan)


def _in_parallel(record: Record) -> Callable[[Span], bool]:
    """A test whether a model call is of the same iteration as the one that ``record`` begins."""
    same = (record.turn_id, record.iteration)
    return lambda done: (
        record.iteration is not None
        and (done.attributes.get(conv.TURN_ID), done.attributes.get(conv.ITERATION)) == same
    )
