"""Received OTLP spans as plain frozen values: bytes become hex, protobuf becomes Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


class ReceivedSpan(NamedTuple):
    """What tests compare of a span as it came over the wire.

    Ids are lowercase hex (32 and 16 digits); times are nanoseconds since 1970; ``kind`` is
    ``internal``, ``server``, ``client``, ``producer``, ``consumer`` or ``unspecified``;
    ``status`` is ``unset``, ``ok`` or ``error``.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    start_ns: int
    end_ns: int
    status: str
    attributes: dict[str, Any]
    resource: dict[str, Any]


def spans_of(request: ExportTraceServiceRequest) -> tuple[ReceivedSpan, ...]:
    return tuple(
        _span(span, _values(of_resource.resource.attributes))
        for of_resource in request.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    )


def _span(span: Span, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex() or None,
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        status=Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_").lower(),
        attributes=_values(span.attributes),
        resource=resource,
    )


def _values(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return tuple(_value(one) for one in value.array_value.values)
        case "kvlist_value":
            return _values(value.kvlist_value.values)
        case kind:
            return getattr(value, kind)
