"""Spans as the JSON that Jaeger's user interface opens from a file, without a backend.

It is the format of an answer of Jaeger's query API: traces of spans with microseconds, tags for
attributes, logs for events, and a table of processes for resources. As Jaeger does with the spans
that it receives, lists become JSON text, and integers beyond JavaScript's range become strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attribute
from eventctx.projections.trace.spans import Span

_PROCESS: Final = "p1"
_MAX_SAFE: Final = 2**53 - 1
_MICROSECOND: Final = 1_000

_encoder = msgspec.json.Encoder()

EncodedSpan = bytes


def encode_span(span: Span, version: str) -> EncodedSpan:
    """One span of a trace as JSON. ``version`` is eventctx's."""
    start = span.start // _MICROSECOND
    return _encoder.encode(
        {
            "traceID": span.trace_id,
            "spanID": span.span_id,
            "operationName": span.name,
            "references": _references(span),
            "startTime": start,
            "duration": max(span.end // _MICROSECOND - start, 0),
            "tags": _tags(span, version),
            "logs": [
                {
                    "timestamp": event.time // _MICROSECOND,
                    "fields": [_tag("event", event.name), *_pairs(event.attributes)],
                }
                for event in span.events
            ],
            "processID": _PROCESS,
            "warnings": None,
        }
    )


def file_parts(
    traces: Mapping[str, Iterable[EncodedSpan]], resource: Mapping[str, Attribute]
) -> Iterator[bytes]:
    """Yield the parts of a file with these traces, which are given by trace id."""
    tags = [_tag(name, value) for name, value in resource.items() if name != conv.SERVICE_NAME]
    process = {"serviceName": resource.get(conv.SERVICE_NAME, conv.SCOPE), "tags": tags}
    processes = _encoder.encode({_PROCESS: process})
    yield b'{"data":['
    for place, (trace_id, spans) in enumerate(traces.items()):
        yield b',\n{"traceID":' if place else b'\n{"traceID":'
        yield _encoder.encode(trace_id) + b',"spans":[\n' + b",\n".join(spans)
        yield b'\n],"processes":' + processes + b',"warnings":null}'
    yield b'\n],"total":0,"limit":0,"offset":0,"errors":null}\n'


def _references(span: Span) -> list[dict[str, Any]]:
    """The parent first, then the links; the format has no place for their attributes."""
    named = [("FOLLOWS_FROM", link.trace_id, link.span_id) for link in span.links]
    if span.parent_span_id is not None:
        named.insert(0, ("CHILD_OF", span.trace_id, span.parent_span_id))
    return [{"refType": kind, "traceID": trace, "spanID": own} for kind, trace, own in named]


def _tags(span: Span, version: str) -> list[dict[str, Any]]:
    # Jaeger writes otel.scope.*, but its interface still reads the scope from otel.library.*.
    tags = [
        _tag("otel.scope.name", conv.SCOPE),
        _tag("otel.scope.version", version),
        _tag("otel.library.name", conv.SCOPE),
        _tag("otel.library.version", version),
        *_pairs(span.attributes),
        _tag("span.kind", span.kind),
    ]
    if span.status == "error":
        tags += [_tag("otel.status_code", "ERROR"), _tag("error", True)]
        if span.message is not None:
            tags.append(_tag("otel.status_description", span.message))
    return tags


def _pairs(attributes: Mapping[str, Attribute]) -> list[dict[str, Any]]:
    return [_tag(name, value) for name, value in attributes.items()]


def _tag(name: str, value: Attribute) -> dict[str, Any]:
    kind = type(value)
    if kind is str:
        return {"key": name, "type": "string", "value": value}
    if kind is int:
        safe = -_MAX_SAFE <= value <= _MAX_SAFE  # type: ignore[operator]
        return {"key": name, "type": "int64", "value": value if safe else str(value)}
    if kind is bool:
        return {"key": name, "type": "bool", "value": value}
    if kind is float:
        return {"key": name, "type": "float64", "value": value}
    return {"key": name, "type": "string", "value": _encoder.encode(value).decode()}
