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
from eventctx.projections.trace import content as content_stage
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import OPENS
from eventctx.projections.trace.compaction import given_up_attributes
from eventctx.projections.trace.content import ContentState
from eventctx.projections.trace.identity import lineage_of_fork, locate, needs, with_origin
from eventctx.projections.trace.spans import OpenSpan, Span, give_up, with_event
from eventctx.projections.trace.steps import (
    MAX_WAITING,
    UNSHOWN,
    SentRequest,
    TraceState,
    close_span,
    count,
    latest,
    open_span,
    put,
    release,
    show,
    span_showing,
    turn_of,
)
from eventctx.projections.trace.texts import Clean


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
        return _show(state, record, event)
    if isinstance(event, SessionFork):
        # The spans of the records before it are in the parent's traces.
        state = TraceState(lineage=lineage_of_fork(state.lineage, record, event))
    if not state.started:
        state = _start(state, record, event)
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
        state = replace(state, lineage=with_origin(state.lineage, event))
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


def _start(state: TraceState, record: Record, event: Event | Unknown) -> TraceState:
    """The state before the first record that is folded."""
    if isinstance(event, SessionStart) and event.imported_at is not None:
        undated = record.time if event.imported_at == record.time else None
        state = replace(state, undated=undated, imported=True)
    first = record.position == 0 or isinstance(event, SessionFork)
    return replace(state, started=True, compactions=0 if first else state.compactions)


def _show(state: TraceState, record: Record, event: Event | Unknown) -> TraceState:
    span = span_showing(state, record)
    time = latest(state, record)
    if span is None:
        return replace(state, finished=(), time=time)
    spans = state.open | {span.span_id: with_event(span, record, event)}
    return replace(state, finished=(), time=time, open=spans)


def _use(state: TraceState, record: Record, event: UsageReported) -> TraceState:
    """Add a call's usage to its chat span, and to the sum on its turn."""
    usage = attrs.usage_attributes(event) | given_up_attributes(state.cache, event)
    state = replace(state, cache=state.cache.with_report(event))
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


def _measure(state: TraceState, record: Record, event: PromptMeasured) -> TraceState:
    """Add to the turn's duration as the program that ran it measured it."""
    return count(state, record.turn_id, {conv.TURN_DURATION: event.duration})


def _prepare(state: TraceState, record: Record, event: RequestPrepared) -> TraceState:
    """Keep a prepared request for the chat that sends it, which usually begins later."""
    cache = state.cache.with_request(record.position, event.tokens)
    state = replace(state, plan=event.plan, digest=event.digest, cache=cache)
    turn = turn_of(state, record.turn_id)
    if turn is not None and event.demands_absent is not None:
        known_before = turn.attributes.get(conv.INSTRUCTIONS_ABSENT, 0)
        most = max(event.demands_absent, known_before if isinstance(known_before, int) else 0)
        attributes = turn.attributes | {conv.INSTRUCTIONS_ABSENT: most}
        state = put(state, replace(turn, attributes=attributes))
    known = attrs.request_attributes(record, event) | attrs.plan_attributes(event.plan)
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
    PromptMeasured: _measure,
}
"""The steps of events that change a span and neither begin nor end one."""


class SessionTrace(msgspec.Struct, frozen=True):
    """The spans of a session so far, and, if wanted, the second stage that fills in contents.

    ``finished`` are the spans that the last record completed. ``history`` is the position of the
    last record folded by ``after_history`` (-1: none). A span that began in this history and is
    still open belongs to the process that began it, or to a fold of the whole log; ``unfinished``
    leaves it out.
    """

    spans: TraceState
    content: ContentState | None = None
    finished: tuple[Span, ...] = ()
    history: int = -1

    @classmethod
    def start(cls, clean: Clean | None = None) -> SessionTrace:
        """The state before a stream's first record.

        With ``clean``, which redacts a text, spans carry contents and records need their bodies.
        """
        return cls(initial(), None if clean is None else content_stage.initial(clean))

    def restart(self) -> SessionTrace:
        """The state before another stream's first record, with or without contents as here."""
        return SessionTrace.start(None if self.content is None else self.content.clean)

    def after(self, record: Record) -> SessionTrace:
        """The state after ``record``."""
        spans = evolve(self.spans, record)
        if self.content is None:
            return SessionTrace(spans, None, spans.finished, self.history)
        content, finished = content_stage.evolve(self.content, record, spans.finished)
        return SessionTrace(spans, content, tuple(finished), self.history)

    def after_history(self, records: Iterable[Record]) -> SessionTrace:
        """The state after a stream's ``records``, all appended before anyone observed them."""
        state, last = self.restart(), -1
        for record in records:
            state, last = state.after(record), record.position
        return replace(state, finished=(), history=last)

    def opened_by(self, record: Record) -> OpenSpan | None:
        """The open span that ``record`` began; None if it began none."""
        if record.type not in OPENS:
            return None
        return self.spans.open.get(record.span_id or "")

    def unfinished(self) -> list[Span]:
        """The spans that no record has completed, as of the last record, without the history's."""
        left: Iterable[Span] = unfinished(self.spans)
        if self.content is not None:
            left = content_stage.unfinished(self.content, left)
        return [span for span in left if _began(span) > self.history]


def _began(span: Span) -> int:
    position = span.attributes[conv.EVENT_SEQ]
    return position if isinstance(position, int) else -1


# -- turns that are still open -------------------------------------------------------------------

Turn = tuple[object, object]


def without_open_turns(unfinished: Iterable[Span]) -> list[Span]:
    """The spans that no record has ended, without turns and without the open spans in them."""
    return [
        span
        for span in unfinished
        if span.attributes.get(conv.OUTCOME) != "unfinished" or conv.TURN_ID not in span.attributes
    ]


class OpenTurns:
    """Holds the spans of a turn back until the turn's own span comes.

    A backend keeps every span that it was sent. A turn sent while it is open, and again when it is
    done, has two spans of the same id there, and Jaeger shows both. So a turn without an end is
    left out: the last turn of a session. An earlier turn without an end was left by a crash, and
    nothing will end it any more. Spans must come session by session, in the order of
    ``queries.spans``.
    """

    def __init__(self) -> None:
        self.left_out = 0
        """Turns that were left out."""
        self._held: dict[Turn, list[Span]] = {}
        self._session: object = None
        self._latest = -1

    def ready(self, spans: Iterable[Span]) -> list[Span]:
        """The spans that may be sent now, of these and of those that were held back."""
        out: list[Span] = []
        for span in spans:
            self._enter(span.attributes[conv.CONVERSATION_ID])
            turn = (self._session, span.attributes.get(conv.TURN_ID))
            if turn[1] is None:
                out.append(span)
            elif span.attributes.get(conv.OPERATION) != conv.INVOKE_AGENT:
                self._held.setdefault(turn, []).append(span)
            elif self._is_open(span):
                self.left_out += 1
                self._held.pop(turn, None)
            else:
                out += [*self._held.pop(turn, ()), span]
        return out

    def rest(self) -> list[Span]:
        """The spans whose turn's own span never came, as in a fork, or had come before them."""
        rest = [span for spans in self._held.values() for span in spans]
        self._held.clear()
        return rest

    def _enter(self, session: object) -> None:
        if session != self._session:
            self._session, self._latest = session, -1

    def _is_open(self, turn: Span) -> bool:
        began = turn.attributes[conv.EVENT_SEQ]
        assert isinstance(began, int)  # noqa: S101 - a position
        newest, self._latest = began > self._latest, max(began, self._latest)
        return newest and turn.attributes.get(conv.OUTCOME) == "unfinished"
