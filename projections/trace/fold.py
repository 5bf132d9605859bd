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

from msgspec.structs import replace

from eventctx.log.codec import Unknown
from eventctx.log.events import (
    Cleared,
    Event,
    PostCompact,
    PromptMeasured,
    RequestPrepared,
    SessionEnd,
    SessionFork,
    SessionLinked,
    SessionStart,
    UsageReported,
)
from eventctx.log.record import Record
from eventctx.projections.flat import read
from eventctx.projections.trace import attributes as attrs
from eventctx.projections.trace import links
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.beginning import open_span
from eventctx.projections.trace.ending import close_span
from eventctx.projections.trace.ids import locate, needs
from eventctx.projections.trace.spans import Span, give_up, with_event
from eventctx.projections.trace.state import (
    MAX_WAITING,
    UNSHOWN,
    SentRequest,
    TraceState,
    count,
    latest,
    put,
    release,
    show,
    span_showing,
    turn_of,
)


def initial() -> TraceState:
    """The state before a stream's first record."""
    return TraceState()


def evolve(state: TraceState, record: Record) -> TraceState:
    """Return the state after ``record``; its ``finished`` are the spans that the record ended."""
    if record.type == UNSHOWN and state.started:
        return replace(state, finished=(), time=latest(state, record))
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
        state = replace(state, finished=(), time=latest(state, record))
        return _STEPS[kind](state, record, event)
    before = state.time
    presumed = getattr(event, "status", None) == "lost"
    begins = attrs.opening(event)
    ids, trace_id = state.ids, ""
    if begins is not None or needs(record):
        ids, trace_id = locate(ids, record, event)
    time = before if presumed else latest(state, record)
    state = replace(state, finished=(), ids=ids, time=time)
    if (
        begins is not None
        and record.span_id is not None
        and record.span_id not in state.open
        and not isinstance(event, PostCompact)
    ):
        return open_span(state, record, event, trace_id, begins, before)
    ends = attrs.closing(event, record)
    if ends is not None:
        return close_span(state, record, event, trace_id, ends)
    if isinstance(event, SessionEnd):
        state = release(state, lambda _: False)
    if isinstance(event, Cleared):
        state = replace(state, plan=None)
    if isinstance(event, SessionLinked):
        state = replace(state, lineage=links.linked(state.lineage, event))
    return show(state, record, event)


_STEERING: Final = frozenset(
    (
        *attrs.SPANS,
        *(UsageReported, RequestPrepared, PromptMeasured, Cleared),
        *(SessionFork, SessionLinked, SessionEnd),
    )
)
"""Events that begin, end or change a span. All others are only shown as events on a span."""


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


def _started(state: TraceState, record: Record, event: Event | Unknown) -> TraceState:
    """The state before the first record that is folded."""
    if isinstance(event, SessionStart) and event.imported_at is not None:
        undated = record.time if event.imported_at == record.time else None
        state = replace(state, undated=undated, imported=True)
    first = record.position == 0 or isinstance(event, SessionFork)
    return replace(state, started=True, compactions=0 if first else state.compactions)


def _shown(state: TraceState, record: Record, event: Event | Unknown) -> TraceState:
    span = span_showing(state, record)
    time = latest(state, record)
    if span is None:
        return replace(state, finished=(), time=time)
    spans = state.open | {span.span_id: with_event(span, record, event)}
    return replace(state, finished=(), time=time, open=spans)


def _use(state: TraceState, record: Record, event: UsageReported) -> TraceState:
    """Add a call's usage to its chat span, and to the sum on its turn."""
    usage = attrs.usage(event)
    counts = {conv.INPUT_TOKENS: event.prompt} if event.prompt else {}
    if event.output_exact:
        counts[conv.OUTPUT_TOKENS] = event.output
    else:
        counts[conv.INEXACT_OUTPUTS] = 1
    state = count(state, record.turn_id, counts)
    span = state.open.get(record.span_id or "")
    if span is not None and span.family == "chat":
        return put(state, replace(span, attributes=span.attributes | usage))
    for done in state.answered:
        if done.span_id == record.span_id:
            rest = tuple([other for other in state.answered if other is not done])
            done = replace(done, attributes=done.attributes | usage)
            return replace(state, answered=rest, finished=(*state.finished, done))
    return show(state, record, event)


def _measured(state: TraceState, record: Record, event: PromptMeasured) -> TraceState:
    """Add to what the turn took by the measure of the program that ran it."""
    return count(state, record.turn_id, {conv.TURN_DURATION: event.duration})


def _prepare(state: TraceState, record: Record, event: RequestPrepared) -> TraceState:
    """Keep a prepared request for the chat that sends it, which usually begins later."""
    state = replace(state, plan=event.plan, digest=event.digest)
    turn = turn_of(state, record.turn_id)
    if turn is not None and event.demands_absent is not None:
        known_before = turn.attributes.get(conv.INSTRUCTIONS_ABSENT, 0)
        most = max(event.demands_absent, known_before if isinstance(known_before, int) else 0)
        attributes = turn.attributes | {conv.INSTRUCTIONS_ABSENT: most}
        state = put(state, replace(turn, attributes=attributes))
    known = attrs.prepared(record, event) | attrs.in_force(event.plan)
    span = state.open.get(record.span_id or "")
    if span is not None and span.family == "chat":
        return put(state, replace(span, attributes=span.attributes | known))
    waiting = (*state.waiting, SentRequest(record, event.plan, known))
    if len(waiting) > MAX_WAITING:
        state = show(state, waiting[0].record, read(waiting[0].record))
    return replace(state, waiting=waiting[-MAX_WAITING:])


_STEPS: Final[dict[type, Callable[[TraceState, Record, Any], TraceState]]] = {
    UsageReported: _use,
    RequestPrepared: _prepare,
    PromptMeasured: _measured,
}
"""The steps of events that change a span and neither begin nor end one."""
