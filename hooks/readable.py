"""A finished span as the SDK's ``ReadableSpan``, which its exporters and processors accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.spans import Span, SpanLink
from eventctx.version import __version__

SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_SCOPE: Final = InstrumentationScope(conv.SCOPE, __version__, conv.SCHEMA_URL)
_KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
_UNSET: Final = Status()


def readable(
    span: Span,
    of: Resource,
    *,
    added: Mapping[str, Any] | None = None,
    state: TraceState | None = None,
) -> ReadableSpan:
    """The span as a sampled one, with ``added`` attributes; ``state`` is its trace's state."""
    trace_id = int(span.trace_id, 16)
    parent = None
    if span.parent_span_id is not None:
        parent = SpanContext(trace_id, int(span.parent_span_id, 16), False, SAMPLED, state)
    attributes: Mapping[str, Any] = {**added, **span.attributes} if added else span.attributes
    return ReadableSpan(
        span.name,
        SpanContext(trace_id, int(span.span_id, 16), False, SAMPLED, state),
        parent,
        of,
        attributes,
        [Event(event.name, event.attributes, event.time) for event in span.events],
        [_link(one) for one in span.links] if span.links else (),
        _KINDS[span.kind],
        None,
        Status(StatusCode.ERROR, span.message) if span.status == "error" else _UNSET,
        span.start,
        span.end,
        _SCOPE,
    )


def _link(link: SpanLink) -> Link:
    to = SpanContext(int(link.trace_id, 16), int(link.span_id, 16), False, SAMPLED)
    return Link(to, link.attributes)
