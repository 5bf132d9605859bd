"""Finished spans with ids and times of the test's choosing, ready for an exporter."""

from __future__ import annotations

import secrets

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
)

START = 1_790_000_000_000_000_000  # ns since 1970
ROOT, CHAT = "00000000000000a1", "00000000000000a2"
LINKED = ("f" * 32, "00000000000000b7")


def new_trace_id() -> str:
    """A new trace id for each test, because all tests share one Jaeger."""
    return secrets.token_hex(16)


def turn(trace_id: str, service: str = "test") -> list[ReadableSpan]:
    """A root with a span event, and a failed call of a model below it with a link elsewhere."""
    resource = Resource({"service.name": service, "host.count": 2})
    scope = InstrumentationScope("eventctx", "1.2.3", "https://opentelemetry.io/schemas/1.40.0")
    root = ReadableSpan(
        name="invoke_agent coder",
        context=_context(trace_id, ROOT),
        kind=SpanKind.INTERNAL,
        start_time=START,
        end_time=START + 5_000_001_234,
        attributes={
            "gen_ai.conversation.compacted": True,
            "eventctx.iteration": 0,
            "eventctx.compaction.ratio": 0.25,
            "gen_ai.conversation.id": "s1",
            "names": ("a", "b"),
        },
        events=[
            Event("context:pre_compact", {"position": 3, "vetoed": False}, START + 1_500),
            Event("a later one", {}, START + 2_500),
        ],
        resource=resource,
        instrumentation_scope=scope,
    )
    chat = ReadableSpan(
        name="chat m1",
        context=_context(trace_id, CHAT),
        parent=_context(trace_id, ROOT),
        kind=SpanKind.CLIENT,
        start_time=START + 1_000,
        end_time=START + 2_001_000,
        attributes={"error.type": "Overloaded", "tokens": 0, "digest": 2**60},
        status=Status(StatusCode.ERROR, "try later"),
        links=[Link(_context(*LINKED), {"why": "fork"})],
        resource=resource,
        instrumentation_scope=scope,
    )
    return [root, chat]


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), False, TraceFlags(TraceFlags.SAMPLED))
