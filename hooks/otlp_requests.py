"""Encoded requests of OTLP's trace service, and how one that is too large is divided."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

_FRAME: Final = 6
"""Most bytes of the tag and the length that stand before a message in another one."""


def number_of_spans(request: ExportTraceServiceRequest) -> int:
    """The number of spans in a request."""
    return sum(len(scope.spans) for of in request.resource_spans for scope in of.scope_spans)


def in_parts(request: ExportTraceServiceRequest, most: int) -> list[ExportTraceServiceRequest]:
    """The request in parts of at most ``most`` bytes, in the same order.

    A span that is larger by itself is alone in its part. A request that is divided keeps the spans
    of a resource and scope apart from those of others.
    """
    if request.ByteSize() <= most:
        return [request]
    parts: list[ExportTraceServiceRequest] = []
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            empty = _request(resource, scope, ()).ByteSize() + 3 * _FRAME
            group: list[Span] = []
            size = empty
            for span in scope.spans:
                more = span.ByteSize() + _FRAME
                if group and size + more > most:
                    parts.append(_request(resource, scope, group))
                    group, size = [], empty
                group.append(span)
                size += more
            if group:
                parts.append(_request(resource, scope, group))
    return parts


def _request(
    resource: ResourceSpans, scope: ScopeSpans, spans: Iterable[Span]
) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    of = request.resource_spans.add(schema_url=resource.schema_url)
    of.resource.CopyFrom(resource.resource)
    within = of.scope_spans.add(schema_url=scope.schema_url)
    within.scope.CopyFrom(scope.scope)
    within.spans.extend(spans)
    return request
