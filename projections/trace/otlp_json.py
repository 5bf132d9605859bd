"""Spans as OTLP JSON, the OpenTelemetry protocol's format for files.

In the protocol's JSON mapping ids are hex, 64-bit integers are strings, and enumerations are
numbers. Every line of a file is one export request (``{"resourceSpans": […]}``), as the
OpenTelemetry Collector writes and reads them. Source: opentelemetry-proto, docs/specification.md,
"JSON Protobuf Encoding".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attribute
from eventctx.projections.trace.spans import Span

_KINDS: Final = {"internal": 1, "client": 3}
_ERROR: Final = {"code": 2}
_LOCAL: Final = 0x100
"""Known not to have a remote parent (the protocol's SpanFlags), as the SDK's encoder sets it."""

_encoder = msgspec.json.Encoder()


def export_line(spans: Iterable[Span], resource: Mapping[str, Attribute], version: str) -> bytes:
    """One export request, without a line feed. ``version`` is eventctx's."""
    return _encoder.encode(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes(resource)},
                    "scopeSpans": [
                        {
                            "scope": {"name": conv.SCOPE, "version": version},
                            "spans": [_span(span) for span in spans],
                            "schemaUrl": conv.SCHEMA_URL,
                        }
                    ],
                }
            ]
        }
    )


def _span(span: Span) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "flags": _LOCAL,
        "name": span.name,
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes(span.attributes),
    }
    if span.parent_span_id is not None:
        encoded["parentSpanId"] = span.parent_span_id
    if span.events:
        encoded["events"] = [
            {
                "timeUnixNano": str(event.time),
                "name": event.name,
                "attributes": _attributes(event.attributes),
            }
            for event in span.events
        ]
    if span.status == "error":
        encoded["status"] = _ERROR if span.message is None else {**_ERROR, "message": span.message}
    return encoded


def _attributes(attributes: Mapping[str, Attribute]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Attribute) -> dict[str, Any]:
    kind = type(value)
    if kind is str:
        return {"stringValue": value}
    if kind is int:
        return {"intValue": str(value)}
    if kind is bool:
        return {"boolValue": value}
    if kind is float:
        return {"doubleValue": value}
    assert isinstance(value, tuple)  # noqa: S101 - an attribute is nothing else
    return {"arrayValue": {"values": [{"stringValue": item} for item in value]}}
