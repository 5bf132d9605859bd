"""The state of the fold of spans, and the small steps that several of its parts take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from eventctx.log.codec import Unknown
from eventctx.log.events import Event
from eventctx.log.record import Record
from eventctx.projections.trace import links, parents
from eventctx.projections.trace.attributes import Attributes
from eventctx.projections.trace.ids import TraceIds
from eventctx.projections.trace.spans import OpenSpan, Span, with_event

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


def latest(state: TraceState, record: Record) -> int:
    """The latest time of a turn's or a span's record.

    What is written about a session, maybe years later, does not prolong what is open, nor does a
    record whose file dates only later ones: its time is that of the import.
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
