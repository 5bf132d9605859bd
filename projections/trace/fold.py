"""Spans as a fold over a session's records, the same live and from the log.

One record opens a span and another with the same span id closes it: turns, model calls, tool calls,
planning phases and compactions. Every other record but an added message becomes an event on the
innermost open span that it names. A span hangs where its record does, except for tools
(``parents``). One state folds one stream, and of a fork only the fork's own records, since the
spans of the inherited ones are the parent's.

Two kinds of record do not arrive where they belong, so the fold keeps them for a while. A prepared
request comes before the model call that sends it, and waits for that call (``waiting``). A usage
report may come after its model call has ended, so a call that ended well waits for it
(``answered``), at the latest until a model call of another iteration or the end of the turn.

A span ends with the first record that ends it. A presumed end (``lost``) ends it at the last time
at which its process recorded anything. A real end that follows is shown as an event, since the span
may have been sent already.

Invariant: ids, times and parents come from the records, never from a clock or a random source, so
folding the same records again gives equal spans. All that the state keeps is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from eventctx.log.codec import Unknown
from eventctx.log.events import (
    Cleared,
    Event,
    PostCompact,
    PreCompact,
    PromptMeasured,
    ProviderRequest,
    RequestPrepared,
    SessionEnd,
    SessionFork,
    SessionLinked,
    SessionStart,
    UsageReported,
)
from eventctx.log.ids import derive_span_id
from eventctx.log.record import Record
from eventctx.projections.flat import read
from eventctx.projections.trace import attributes as attrs
from eventctx.projections.trace import links, parents
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attributes, Closing
from eventctx.projections.trace.ids import TraceIds, locate, needs
from eventctx.projections.trace.spans import (
    OpenSpan,
    Span,
    SpanLink,
    begin,
    finish,
    give_up,
    with_event,
)

MAX_OPEN: Final = 256
"""Most open spans of one session; beyond that, the oldest is finished as ``unfinished``."""
_MAX_WAITING: Final = 8
_AROUND: Final = ("turn", "plan", "compact")
"""Families of spans with others inside."""


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
    - ``ids``: the trace ids; ``calls``: the last model calls, whose tools hang beside them.
    - ``lineage``: where spans may link to.
    - ``plan``: position of the post_compact in force, if known.
    - ``compactions``: how many were seen; None if the fold did not see the stream's beginning.
    - ``digest``: of the last request's view.
    - ``started``: whether a record was folded.
    - ``time``: the latest of a turn's or a span's records, in UTC nanoseconds.
    - ``imported``: whether a file was imported, whose lines end one span and begin the next.
    - ``undated``: the time of the records that an import has from no file: that of the import.
    - ``floor``: start of the last turn, in UTC nanoseconds; a compaction whose duration reaches
      further back is shown as begun then.
    """

    finished: tuple[Span, ...] = ()
    open: dict[str, OpenSpan] = {}
    answered: tuple[Span, ...] = ()
    waiting: tuple[SentRequest, ...] = ()
    sent: tuple[SentRequest, ...] = ()
    ids: TraceIds = TraceIds()
    calls: parents.Calls = ()
    lineage: links.Lineage = links.Lineage()
    plan: int | None = None
    compactions: int | None = None
    digest: str | None = None
    started: bool = False
    time: int = 0
    floor: int = 0
    undated: int | None = None
    imported: bool = False


def initial() -> TraceState:
    """The state before a stream's first record."""
    return TraceState()


def evolve(state: TraceState, record: Record) -> TraceState:
    """Return the state after ``record``; its ``finished`` are the spans that the record ended."""
    if record.type == _UNSHOWN and state.started:
        return replace(state, finished=(), time=_latest(state, record))
    event = read(record)
    kind = type(event)
    if kind not in _STEERING and state.started and not needs(record):
        return _shown(state, record, event)
    if isinstance(event, SessionFork):
        # The spans of the records before it are in the parent's traces.
        state = TraceState(lineage=links.forked(state.lineage, record, event))
    if not state.started:
        state = _started(state, record, event)
    if kind in _STEPS:
        state = replace(state, finished=(), time=_latest(state, record))
        return _STEPS[kind](state, record, event)
    before = state.time
    presumed = getattr(event, "status", None) == "lost"
    begins = attrs.opening(event)
    ids, trace_id = state.ids, ""
    if begins is not None or needs(record):
        ids, trace_id = locate(ids, record, event)
    time = before if presumed else _latest(state, record)
    state = replace(state, finished=(), ids=ids, time=time)
    if (
        begins is not None
        and record.span_id is not None
        and record.span_id not in state.open
        and not isinstance(event, PostCompact)
    ):
        return _open(state, record, event, trace_id, begins, before)
    ends = attrs.closing(event, record)
    if ends is not None:
        return _close(state, record, event, trace_id, ends)
    if isinstance(event, SessionEnd):
        state = _release(state, lambda _: False)
    if isinstance(event, Cleared):
        state = replace(state, plan=None)
    if isinstance(event, SessionLinked):
        state = replace(state, lineage=links.linked(state.lineage, event))
    return _show(state, record, event)


_STEERING: Final = frozenset(
    (
        *attrs.SPANS,
        *(UsageReported, RequestPrepared, PromptMeasured, Cleared),
        *(SessionFork, SessionLinked, SessionEnd),
    )
)
"""Events that begin, end or change a span. All others are only shown as events on a span."""

_UNSHOWN: Final = "context:message_added"
"""No event of a span: it would say nothing but a position, 66 times in a long turn."""


def _started(state: TraceState, record: Record, event: Event | Unknown) -> TraceState:
    """The state before the first record that is folded."""
    if isinstance(event, SessionStart) and event.imported_at is not None:
        undated = record.time if event.imported_at == record.time else None
        state = replace(state, undated=undated, imported=True)
    first = record.position == 0 or isinstance(event, SessionFork)
    return replace(state, started=True, compactions=0 if first else state.compactions)


def _shown(state: TraceState, record: Record, event: Event | Unknown) -> TraceState:
    span = _span_showing(state, record)
    time = _latest(state, record)
    if span is None:
        return replace(state, finished=(), time=time)
    spans = state.open | {span.span_id: with_event(span, record, event)}
    return replace(state, finished=(), time=time, open=spans)


def _latest(state: TraceState, record: Record) -> int:
    """The latest time of a turn's or a span's record.

    What is written about a session, maybe years later, does not prolong what is open, nor does a
    record whose file dates only later ones: its time is that of the import.
    """
    time = record.time
    if time <= state.time or time == state.undated:
        return state.time
    return time if record.turn_id is not None or record.span_id is not None else state.time


def unfinished(state: TraceState) -> tuple[Span, ...]:
    """The spans that no record has ended, innermost first, as of the last record folded.

    Their outcome is ``unfinished``, except for model calls that ended and only wait for their
    usage.
    """
    left: list[Span] = []
    covers: dict[str, int] = {}
    for span in reversed(state.open.values()):
        latest = max(span.covers, covers.get(span.span_id, 0))
        done = give_up(replace(span, covers=latest), state.time)
        covers[span.parent_span_id or ""] = max(covers.get(span.parent_span_id or "", 0), done.end)
        left.append(done)
    return (*state.answered, *left)


def fold(records: Iterable[Record]) -> Iterator[Span]:
    """The spans of one stream's records in the order they ended, unfinished ones last.

    For a fork only its own spans, even if the records begin with those it inherits.
    """
    state, found = initial(), list[Span]()
    for record in records:
        state = evolve(state, record)
        if record.type == "session:fork":
            found.clear()
        found.extend(state.finished)
    return iter((*found, *unfinished(state)))


# -- the steps -----------------------------------------------------------------------------------


def _open(
    state: TraceState,
    record: Record,
    event: Event | Unknown,
    trace_id: str,
    begins: attrs.SpanStart,
    before: int,
) -> TraceState:
    attributes = attrs.identity(record) | begins.attributes
    spans = dict(state.open)
    start = record.time
    turn = _turn(state, record.turn_id)
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
        if state.compactions is not None:
            state = replace(state, compactions=state.compactions + 1)
            attributes[conv.COMPACTION_SEQUENCE] = state.compactions or 0
            if state.digest is not None:
                attributes[conv.COMPACTION_VIEW_BEFORE] = state.digest
    elif begins.family == "tool":
        if turn is not None and conv.AGENT_NAME in turn.attributes:
            attributes[conv.AGENT_NAME] = turn.attributes[conv.AGENT_NAME]
        parent = parents.of_tool(state.calls, record, state.open, turn)
        if parent != record.parent_span_id and record.parent_span_id is not None:
            attributes[conv.PARENT_SPAN_ID] = record.parent_span_id
            linked = links.of_tool(record, parent, trace_id)
    elif isinstance(event, ProviderRequest):
        state = replace(state, calls=parents.remember(state.calls, record))
        state = _release(state, _in_parallel(record))
        state, known = _take_prepared(state, record, event)
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
    return _show(state, record, event) if begins.family == "compact" else state


def _close(
    state: TraceState, record: Record, event: Event | Unknown, trace_id: str, ends: Closing
) -> TraceState:
    span = state.open.get(record.span_id or "")
    if isinstance(event, PostCompact):
        if span is None or span.family != "compact":
            state, span = _compaction_alone(state, record, event, trace_id)
        # A compaction without a call to a model is recorded as a whole once it is decided: both its
        # records have about the time of its end, and its start follows from the duration.
        began = max(record.time - event.duration, state.floor)
        if event.trigger != "imported" or not event.duration:
            began = min(span.start, began)
        span = with_event(replace(span, start=began), record, event)
        if event.outcome == "applied":
            saved = event.tokens_before - event.tokens_after
            counts = {conv.TURN_COMPACTIONS: 1, conv.TURN_SAVED: saved}
            state = _count(state, record.turn_id, counts)
            if event.plan is not None:
                applied = (record.position, span.trace_id, span.span_id)
                lineage = replace(state.lineage, compaction=applied)
                state = replace(state, plan=record.position, lineage=lineage)
    if span is None or span.family != ends.family:
        return _show(state, record, event)
    spans = dict(state.open)
    spans.pop(span.span_id, None)
    if span.family == "turn":
        turn_id = span.turn_id
        state = _release(state, lambda done: done.attributes.get(conv.TURN_ID) != turn_id)
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
        surplus = answered[:-_MAX_WAITING]
        return replace(
            state,
            open=spans,
            answered=answered[-_MAX_WAITING:],
            finished=(*state.finished, *surplus),
        )
    return replace(state, open=spans, finished=(*state.finished, done))


def _count(state: TraceState, turn_id: str | None, counts: dict[str, int]) -> TraceState:
    """Add to the counts on the span of a turn, if it is open."""
    turn = _turn(state, turn_id)
    if turn is None:
        return state
    sums = dict(turn.attributes)
    for name, count in counts.items():
        before = sums.get(name, 0)
        sums[name] = before + count if isinstance(before, int) else count
    return _put(state, replace(turn, attributes=sums))


def _use(state: TraceState, record: Record, event: UsageReported) -> TraceState:
    """Add a call's usage to its chat span, and to the sum on its turn."""
    usage = attrs.usage(event)
    counts = {conv.INPUT_TOKENS: event.prompt} if event.prompt else {}
    if event.output_exact:
        counts[conv.OUTPUT_TOKENS] = event.output
    else:
        counts[conv.INEXACT_OUTPUTS] = 1
    state = _count(state, record.turn_id, counts)
    span = state.open.get(record.span_id or "")
    if span is not None and span.family == "chat":
        return _put(state, replace(span, attributes=span.attributes | usage))
    for done in state.answered:
        if done.span_id == record.span_id:
            rest = tuple([other for other in state.answered if other is not done])
            done = replace(done, attributes=done.attributes | usage)
            return replace(state, answered=rest, finished=(*state.finished, done))
    return _show(state, record, event)


def _measured(state: TraceState, record: Record, event: PromptMeasured) -> TraceState:
    """Add to what the turn took by the measure of the program that ran it."""
    return _count(state, record.turn_id, {conv.TURN_DURATION: event.duration})


def _prepare(state: TraceState, record: Record, event: RequestPrepared) -> TraceState:
    """Keep a prepared request for the chat that sends it, which usually begins later."""
    state = replace(state, plan=event.plan, digest=event.digest)
    turn = _turn(state, record.turn_id)
    if turn is not None and event.demands_absent is not None:
        known_before = turn.attributes.get(conv.INSTRUCTIONS_ABSENT, 0)
        most = max(event.demands_absent, known_before if isinstance(known_before, int) else 0)
        attributes = turn.attributes | {conv.INSTRUCTIONS_ABSENT: most}
        state = _put(state, replace(turn, attributes=attributes))
    known = attrs.prepared(record, event) | attrs.in_force(event.plan)
    span = state.open.get(record.span_id or "")
    if span is not None and span.family == "chat":
        return _put(state, replace(span, attributes=span.attributes | known))
    waiting = (*state.waiting, SentRequest(record, event.plan, known))
    if len(waiting) > _MAX_WAITING:
        state = _show(state, waiting[0].record, read(waiting[0].record))
    return replace(state, waiting=waiting[-_MAX_WAITING:])


def _take_prepared(
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
                and not _in_compaction(state, record)
            )
        if found:
            rest = tuple([left for left in state.waiting if left is not one])
            sent = (*state.sent, one)[-_MAX_WAITING:]
            return replace(state, waiting=rest, sent=sent), one.attributes
    for one in state.sent:
        if one.record.position == event.prepared:
            return state, one.attributes
    # A summariser's prompt is no view of the session, so the plan in force does not apply to it.
    if _in_compaction(state, record):
        return state, {}
    return state, attrs.in_force(state.plan)


def _compaction_alone(
    state: TraceState, record: Record, event: PostCompact, trace_id: str
) -> tuple[TraceState, OpenSpan]:
    """Begin the span of a post_compact without a pre_compact; it has all that is needed."""
    begins = attrs.opening(event)
    assert begins is not None  # noqa: S101 - a post_compact always opens
    attributes = attrs.identity(record) | begins.attributes
    if state.compactions is not None:
        state = replace(state, compactions=state.compactions + 1)
        attributes[conv.COMPACTION_SEQUENCE] = state.compactions or 0
    if state.digest is not None:
        attributes[conv.COMPACTION_VIEW_BEFORE] = state.digest
    span_id = record.span_id
    if span_id is None or span_id in state.open:
        span_id = derive_span_id(record.stream, record.id)
    parent = record.parent_span_id
    return state, begin(record, begins, span_id, parent, trace_id, record.time, attributes)


_STEPS: Final[dict[type, Callable[[TraceState, Record, Any], TraceState]]] = {
    UsageReported: _use,
    RequestPrepared: _prepare,
    PromptMeasured: _measured,
}
"""The steps of events that change a span and neither begin nor end one."""


# -- parts ---------------------------------------------------------------------------------------


def _began(record: Record, event: PreCompact, before: int) -> int:
    """When a compaction began; ``before`` is the time of the record before it, 0 without a date.

    Files of other programs date its end alone. Nothing else happened since the record before it,
    unless a person asked for it: then the time between may be that person's.
    """
    by_person = (event.requested_by or "").endswith(":manual")
    if event.trigger != "imported" or by_person or not before:
        return record.time
    return min(before, record.time)


def _turn(state: TraceState, turn_id: str | None) -> OpenSpan | None:
    if turn_id is not None:
        for span in state.open.values():
            if span.family == "turn" and span.turn_id == turn_id:
                return span
    return None


def _put(state: TraceState, span: OpenSpan) -> TraceState:
    return replace(state, open=state.open | {span.span_id: span})


def _in_compaction(state: TraceState, record: Record) -> bool:
    parent = state.open.get(record.parent_span_id or "")
    return parent is not None and parent.family == "compact"


def _awaits_usage(ends: Closing, span: OpenSpan) -> bool:
    return ends.attributes[conv.OUTCOME] == "ok" and conv.CACHE_READ_TOKENS not in span.attributes


def _show(state: TraceState, record: Record, event: Event | Unknown) -> TraceState:
    """Show a record as an event on the span it names, else on its parent span, else on its turn."""
    span = _span_showing(state, record)
    return state if span is None else _put(state, with_event(span, record, event))


def _span_showing(state: TraceState, record: Record) -> OpenSpan | None:
    if record.type == _UNSHOWN:
        return None
    return (
        state.open.get(record.span_id or "")
        or state.open.get(record.parent_span_id or "")
        or _turn(state, record.turn_id)
    )


def _show_unsent(state: TraceState, turn: OpenSpan) -> tuple[TraceState, OpenSpan]:
    """Show as events on the turn the requests that were prepared in it and never sent."""
    left: list[SentRequest] = []
    for one in state.waiting:
        if one.record.turn_id == turn.turn_id:
            turn = with_event(turn, one.record, read(one.record))
        else:
            left.append(one)
    return replace(state, waiting=tuple(left)), turn


def _release(state: TraceState, keeps: Callable[[Span], bool]) -> TraceState:
    """Finish the model calls that wait for usage, except those that ``keeps`` selects."""
    if not state.answered:
        return state
    keep = tuple([done for done in state.answered if keeps(done)])
    gone = tuple([done for done in state.answered if not keeps(done)])
    return replace(state, answered=keep, finished=(*state.finished, *gone))


def _in_parallel(record: Record) -> Callable[[Span], bool]:
    """A test whether a model call is of the same iteration as the one that ``record`` begins."""
    same = (record.turn_id, record.iteration)
    return lambda done: (
        record.iteration is not None
        and (done.attributes.get(conv.TURN_ID), done.attributes.get(conv.ITERATION)) == same
    )
