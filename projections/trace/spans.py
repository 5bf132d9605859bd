"""Open and finished spans, and the span events that show records on them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from eventctx.log.codec import Unknown
from eventctx.log.events import Event
from eventctx.log.record import Record
from eventctx.projections.flat import MAX_TEXT, clip_field
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import (
    Attributes,
    Family,
    Kind,
    SpanStart,
    SpanStatus,
    event_attributes,
)

MAX_EVENTS: Final = 128
"""Most events on one span, OpenTelemetry's own default. The span has a count of the others."""


class SpanEvent(msgspec.Struct, frozen=True, gc=False):
    """A record shown on a span; ``time`` in UTC nanoseconds."""

    name: str
    time: int
    attributes: Attributes


class SpanLink(msgspec.Struct, frozen=True, gc=False):
    """A reference to a span of this or another trace; ids are lowercase hex."""

    trace_id: str
    span_id: str
    attributes: Attributes


class Span(msgspec.Struct, frozen=True, gc=False):
    """A finished span. ``start`` and ``end`` are UTC nanoseconds, ids lowercase hex.

    ``message`` describes an error. ``attributes`` are strings, numbers, booleans, and tuples of
    strings; callers must not change them.
    """

    name: str
    kind: Kind
    trace_id: str
    span_id: str
    parent_span_id: str | None
    start: int
    end: int
    status: SpanStatus
    message: str | None
    attributes: Attributes
    events: tuple[SpanEvent, ...]
    links: tuple[SpanLink, ...] = ()


class SpanEventList(msgspec.Struct, frozen=True, gc=False):
    """A span's events so far as a linked list, newest first, so that adding one copies nothing."""

    older: SpanEventList | None
    event: SpanEvent


class OpenSpan(msgspec.Struct, frozen=True, gc=False):
    """A span that no record has ended yet.

    ``start`` is in UTC nanoseconds. ``shown`` counts its events, ``dropped`` those beyond the
    limit. ``quiet_since`` is the time, in UTC nanoseconds, of the last record before another
    turn began: the best guess at the end of a span that a crash left open. ``covers``: the end of
    a child of no length, in UTC nanoseconds, which is made a nanosecond long and must not outlast
    this span. ``carried``: whether a span inside this turn has the links of its session.
    """

    family: Family
    name: str
    kind: Kind
    trace_id: str
    span_id: str
    parent_span_id: str | None
    turn_id: str | None
    start: int
    attributes: Attributes
    events: SpanEventList | None = None
    shown: int = 0
    dropped: int = 0
    quiet_since: int | None = None
    covers: int = 0
    links: tuple[SpanLink, ...] = ()
    carried: bool = False


def begin(
    record: Record,
    begins: SpanStart,
    span_id: str,
    parent: str | None,
    trace_id: str,
    start: int,
    attributes: Attributes,
) -> OpenSpan:
    """Return the span that ``record`` begins, below ``parent``; ``start`` is in UTC nanoseconds.

    Its texts, such as the name of a tool, are cut to ``MAX_TEXT`` characters.
    """
    return OpenSpan(
        begins.family,
        clip_field(begins.name),
        begins.kind,
        trace_id,
        span_id,
        parent,
        record.turn_id,
        start,
        _short(attributes),
    )


def _short(attributes: Attributes) -> Attributes:
    """The attributes with texts cut to ``MAX_TEXT`` characters; the same dict if none is longer."""
    values = attributes.values()
    texts = compress(values, map(_TEXTS.__contains__, map(type, values)))
    if max(map(len, cast("Iterator[str]", texts)), default=0) <= MAX_TEXT:
        return attributes
    return {
        name: clip_field(value) if isinstance(value, str) else value
        for name, value in attributes.items()
    }


_TEXTS: Final = frozenset((str,))


def with_event(span: OpenSpan, record: Record, event: Event | Unknown) -> OpenSpan:
    """Return the span with ``record`` as one more event, or as one more dropped event."""
    if span.shown >= MAX_EVENTS:
        return replace(span, dropped=span.dropped + 1)
    shown = SpanEvent(record.type, record.time, event_attributes(record, event))
    return replace(span, events=SpanEventList(span.events, shown), shown=span.shown + 1)


def finish(
    span: OpenSpan, end: int, status: SpanStatus, message: str | None, known_at_end: Attributes
) -> Span:
    """Return the finished span; ``end`` is in UTC nanoseconds."""
    shown: list[SpanEvent] = []
    link = span.events
    while link is not None:
        shown.append(link.event)
        link = link.older
    shown.reverse()
    attributes = span.attributes | _short(known_at_end)
    if span.dropped:
        attributes[conv.EVENTS_DROPPED] = span.dropped
    return Span(
        span.name,
        span.kind,
        span.trace_id,
        span.span_id,
        span.parent_span_id,
        span.start,
        # Imported records often share a time, and backends treat a span of length 0 as damaged.
        max(end, span.start + 1, span.covers),
        status,
        None if message is None else clip_field(message),
        attributes,
        tuple(shown),
        span.links,
    )


def give_up(span: OpenSpan, now: int) -> Span:
    """Return a span that no record has ended, as unfinished.

    It ends when its session fell quiet, else at ``now`` (UTC nanoseconds).
    """
    end = max(span.start, now if span.quiet_since is None else span.quiet_since)
    return finish(span, end, "unset", None, {conv.OUTCOME: "unfinished"})
