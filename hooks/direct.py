"""Hands finished spans directly to an SDK's own processors, without starting and ending SDK spans.

Starting and ending an SDK span costs several times what the finished span costs: it copies and
checks every attribute. Our spans are finished, checked and final, so the processors get them as
they are, unless the host's set-up could see the difference: by a processor that is not the SDK's
own and may add to a span when it starts, by limits for attributes, or by the SDK's metrics about
itself. Then the span is started and ended as usual.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SynchronousMultiSpanProcessor, Tracer
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import SpanContext, TraceState

from eventctx.hooks.readable import readable
from eventctx.projections.trace.spans import Span

_PASSIVE: Final = frozenset((BatchSpanProcessor, SimpleSpanProcessor))
"""Processors that do nothing when a span starts."""
_ATTRIBUTES: Final = 128
"""The most attributes that a span of ours has, and OpenTelemetry's own limit."""


class Direct:
    """The direct way to one SDK tracer's processors; checked again when a processor is added."""

    def __init__(self, tracer: Tracer) -> None:
        self._composite: Any = tracer.span_processor
        self._allowed = _limits_nothing(tracer) and not _counts_itself()
        self._seen: object = None
        self._way: Callable[[ReadableSpan], None] | None = None
        self._resource: Resource = tracer.resource

    def hand(
        self,
        span: Span,
        added: Mapping[str, Any],
        state: TraceState | None,
        expect: Callable[[SpanContext], None] | None,
    ) -> bool:
        """Hand over a sampled span with ``added`` attributes.

        Returns false if the span must be started and ended as usual. ``expect`` is called with the
        span's context before the span is handed over.
        """
        way = self._passive()
        if way is None:
            return False
        made = readable(span, self._resource, added=added, state=state)
        if expect is not None and made.context is not None:
            expect(made.context)
        way(made)
        return True

    def _passive(self) -> Callable[[ReadableSpan], None] | None:
        processors = getattr(self._composite, "_span_processors", None)
        if processors is not self._seen:
            self._seen = processors
            passive = (
                self._allowed
                and type(self._composite) is SynchronousMultiSpanProcessor
                and isinstance(processors, tuple)
                and all(type(one) in _PASSIVE for one in processors)
            )
            self._way = self._composite.on_end if passive else None
        return self._way


def _limits_nothing(tracer: Tracer) -> bool:
    limits: Any = getattr(tracer, "_span_limits", None)
    if limits is None:
        return False
    lengths = (limits.max_span_attribute_length, limits.max_attribute_length)
    counts = (
        *(limits.max_span_attributes, limits.max_events, limits.max_event_attributes),
        *(limits.max_links, limits.max_link_attributes),
    )
    return all(length is None for length in lengths) and all(
        count is None or count >= _ATTRIBUTES for count in counts
    )


def _counts_itself() -> bool:
    return os.environ.get("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "").lower() == "true"
