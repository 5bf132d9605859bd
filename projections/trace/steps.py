"""The state of the fold of spans, and the steps that begin a span and end one.

A span begins with the request that it sends and the links that it has. It ends with a status, with
what is known only then, and late enough to cover its children.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from eventctx.log.codec import Unknown
from eventctx.log.events import Event, PostCompact, PreCompact, ProviderRequest
from eventctx.log.ids import derive_span_id
from eventctx.log.record import Record
from eventctx.projections.flat import read
from eventctx.projections.trace import attributes as attrs
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attributes, Closing
from eventctx.projections.trace.compaction import CacheSeen, predicted_attributes
from eventctx.projections.trace.identity import (
    Calls,
    Lineage,
    TraceIds,
    links_of_chat,
    links_of_child,
    links_of_tool,
    parent_of_tool,
    remember_call,
    with_last_span,
)
from eventctx.projections.trace.spans import (
    OpenSpan,
    Span,
    SpanLink,
    begin,
    finish,
    give_up,
    with_event,
)

MAX_WAITING: Final = 8
"""Most prepared requests that wait for their call, and most calls that wait for their usage."""

UNSHOWN: Final = "context:message_added"
"""No event of a span: it would say nothing but a position, 66 times in a long turn."""


class SentRequest(msgspec.Struct, frozen=True):
    """A prepared request, and the attributes of the model calls that send it.

    ``plan`` is the position of the post_compact in force.
    """

    record: Record
    plan: int | None
    attributes: Attributes


class TraceState(msgspec.Struct, frozen=True, gc=False):
    """The state of the fold.

    - ``finished``: the spans that the last record ended, children before parents.
    - ``open``: open spans by span id, oldest first.
    - ``answered``: model calls that ended and wait for their usage.
    - ``waiting``: prepared requests that no model call has sent yet; ``sent``: the last ones that
      a call has sent, kept because a call that failed is made again.
    - ``ids``: the trace ids; ``calls``: the last model calls, whose tools get the same parent.
    - ``lineage``: where spans may link to.
    - ``plan``: position of the post_compact in force, if known.
    - ``compactions``: how many were seen; None if the fold did not see the stream's beginning.
    - ``digest``: of the last request's view.
    - ``started``: whether a record was folded.
    - ``time``: the latest of a turn's or a span's records, in UTC nanoseconds.
    - ``imported``: whether a file was imported, whose lines end one span and begin the next.
    - ``undated``: the time of the records that an import has from no file: that of the import.
    - ``cache``: what the provider's cache holds, for what a compaction gives up of it.
    - ``floor``: start of the last turn, in UTC nanoseconds; a compaction whose duration reaches
      further back is shown as begun then.
    """

    finished: tuple[Span, ...] = ()
    open: dict[str, OpenSpan] = {}
    answered: tuple[Span, ...] = ()
    waiting: tuple[SentRequest, ...] = ()
    sent: tuple[SentRequest, ...] = ()
    ids: TraceIds = TraceIds()
    calls: Calls = ()
    lineage: Lineage = Lineage()
    plan: int | None = None
    compactions: int | None = None
    digest: str | None = None
    started: bool = False
    time: int = 0
    floor: int = 0
    undated: int | None = None
    imported: bool = False
    cache: CacheSeen = CacheSeen()


def latest(state: TraceState, record: Record) -> int:
    """The latest time of a turn's or a span's record.

    A record about a session, maybe written years later, does not prolong an open span. Nor does a
    record without a time in its file: its time is that of the import.
    """
    time = record.time
    if time <= state.time or time == state.undated:
        return state.time
    return time if record.turn_id is not None or record.span_id is not None else state.time


def turn_of(state: TraceState, turn_id: str | None) -> OpenSpan | None:
    """The open span of a turn."""
    if turn_id is not None:
        for span in state.open.values():
            if span.family == "turn" and span.turn_id == turn_id:
                return span
    return None


def put(state: TraceState, span: OpenSpan) -> TraceState:
    """The state with this span in the place of the one of its id."""
    return replace(state, open=state.open | {span.span_id: span})


def count(state: TraceState, turn_id: str | None, counts: dict[str, int]) -> TraceState:
    """Add to the counts on the span of a turn, if it is open."""
    turn = turn_of(state, turn_id)
    if turn is None:
        return state
    sums = dict(turn.attributes)
    for name, count in counts.items():
        before = sums.get(name, 0)
        sums[name] = before + count if isinstance(before, int) else count
    return put(state, replace(turn, attributes=sums))


def show(state: TraceState, record: Record, event: Event | Unknown) -> TraceState:
    """Show a record as an event on the span it names, else on its parent span, else on its turn."""
    span = span_showing(state, record)
    return state if span is None else put(state, with_event(span, record, event))


def span_showing(state: TraceState, record: Record) -> OpenSpan | None:
    """The innermost open span that a record names, on which it is shown; None if there is none."""
    if record.type == UNSHOWN:
        return None
    return (
        state.open.get(record.span_id or "")
        or state.open.get(record.parent_span_id or "")
        or turn_of(state, record.turn_id)
    )


def release(state: TraceState, keeps: Callable[[Span], bool]) -> TraceState:
    """Finish the model calls that wait for usage, except those that ``keeps`` selects."""
    if not state.answered:
        return state
    keep = tuple([done for done in state.answered if keeps(done)])
    gone = tuple([done for done in state.answered if not keeps(done)])
    return replace(state, answered=keep, finished=(*state.finished, *gone))


def in_compaction(state: TraceState, record: Record) -> bool:
    """Whether a record is of a call that a compaction makes, such as a summarizer's."""
    parent = state.open.get(record.parent_span_id or "")
    return parent is not None and parent.family == "compact"


MAX_OPEN: Final = 256
"""Most open spans of one session; beyond that, the oldest is finished as ``unfinished``."""


_BY_AGENT: Final = ("tool", "plan")
"""Families of spans that name the agent of their turn."""


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
    attributes = attrs.identity_attributes(record) | begins.attributes
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
        start = _start_time(record, event, before)
        state, known = _number_compaction(state)
        attributes |= known
    elif begins.family == "tool":
        parent = parent_of_tool(state.calls, record, state.open, turn)
        if parent != record.parent_span_id and record.parent_span_id is not None:
            attributes[conv.PARENT_SPAN_ID] = record.parent_span_id
            linked = links_of_tool(record, parent, trace_id)
    elif isinstance(event, ProviderRequest):
        state = replace(state, calls=remember_call(state.calls, record))
        state = release(state, _in_parallel(record))
        state, known = take_prepared(state, record, event)
        attributes |= known
        linked = links_of_chat(state.lineage, attributes, trace_id)
    if turn is not None and conv.AGENT_NAME in turn.attributes and begins.family in _BY_AGENT:
        attributes[conv.AGENT_NAME] = agent = turn.attributes[conv.AGENT_NAME]
        if begins.family == "plan":
            begins = begins._replace(name=f"{begins.name} {agent}")
    if turn is not None and (origins := links_of_child(state.lineage, turn, parent)):
        linked += origins
        spans[turn.span_id] = replace(turn, carried=True)
    span_id = record.span_id or ""
    begun = begin(record, begins, span_id, parent, trace_id, start, attributes)
    spans[span_id] = replace(begun, links=linked) if linked else begun
    if len(spans) > MAX_OPEN:
        oldest = spans.pop(next(iter(spans)))
        state = replace(state, finished=(*state.finished, give_up(oldest, before)))
    state = replace(state, open=spans, lineage=with_last_span(state.lineage, record, trace_id))
    return show(state, record, event) if begins.family == "compact" else state


def compaction_alone(
    state: TraceState, record: Record, event: PostCompact, trace_id: str
) -> tuple[TraceState, OpenSpan]:
    """Begin the span of a post_compact without a pre_compact; it has all that is needed."""
    begins = attrs.opening(event)
    assert begins is not None  # noqa: S101 - a post_compact always opens
    state, known = _number_compaction(state)
    attributes = attrs.identity_attributes(record) | begins.attributes | known
    span_id = record.span_id
    if span_id is None or span_id in state.open:
        span_id = derive_span_id(record.stream, record.id)
    parent = record.parent_span_id
    return state, begin(record, begins, span_id, parent, trace_id, record.time, attributes)


def _number_compaction(state: TraceState) -> tuple[TraceState, Attributes]:
    """Count one more compaction; its number, and the digest of the view before it."""
    known: Attributes = {}
    if state.compactions is not None:
        number = state.compactions + 1
        state = replace(state, compactions=number)
        known[conv.COMPACTION_SEQUENCE] = number
    if state.digest is not None:
        known[conv.COMPACTION_VIEW_BEFORE] = state.digest
    return state, known


def _start_time(record: Record, event: PreCompact, before: int) -> int:
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
    return state, attrs.plan_attributes(state.plan)


def _in_parallel(record: Record) -> Callable[[Span], bool]:
    """A test whether a model call is of the same iteration as the one that ``record`` begins."""
    same = (record.turn_id, record.iteration)
    return lambda done: (
        record.iteration is not None
        and (done.attributes.get(conv.TURN_ID), done.attributes.get(conv.ITERATION)) == same
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
            state, span = _apply(state, record, event, span)
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


def _apply(
    state: TraceState, record: Record, event: PostCompact, span: OpenSpan
) -> tuple[TraceState, OpenSpan]:
    """The state under an applied compaction, and its span with what is predicted of it."""
    saved = event.tokens_before - event.tokens_after
    state = count(state, record.turn_id, {conv.TURN_PLANS: 1, conv.TURN_SAVED: saved})
    span = replace(span, attributes=span.attributes | predicted_attributes(state.cache, event))
    state = replace(state, cache=state.cache.with_compaction())
    if event.plan is not None:
        lineage = replace(state.lineage, compaction=(record.position, span.trace_id, span.span_id))
        state = replace(state, plan=record.position, lineage=lineage)
    return state, span


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
