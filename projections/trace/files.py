"""Spans as files: OTLP JSON, and the JSON that Jaeger's interface opens without a backend.

OTLP JSON is the OpenTelemetry protocol's format for files. In the protocol's JSON mapping ids are
hex, 64-bit integers are strings, and enumerations are numbers. Every line of a file is one export
request (``{"resourceSpans": […]}``), as the OpenTelemetry Collector writes and reads them. Source:
opentelemetry-proto, docs/specification.md, "JSON Protobuf Encoding".

Jaeger's JSON is the format of an answer of Jaeger's query API: traces of spans with microseconds,
tags for attributes, logs for events, and a table of processes for resources. As Jaeger does with
the spans that it receives, lists become JSON text, and integers beyond JavaScript's range become
strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attribute
from eventctx.projections.trace.spans import Span, SpanEvent, SpanLink

_encoder = msgspec.json.Encoder()

# -- OTLP JSON -----------------------------------------------------------------------------------

_KINDS: Final = {"internal": 1, "client": 3}
_ERROR: Final = {"code": 2}
_LOCAL: Final = 0x100
"""Known not to have a remote parent (the protocol's SpanFlags), as the SDK's encoder sets it."""

_SHORT_TEXT: Final = 48
"""Characters below which a text's JSON is remembered: room for an id, none for a digest."""


def _json(value: Any) -> str:
    return _encoder.encode(value).decode()


def otlp_line(spans: Iterable[Span], resource: Mapping[str, Attribute], version: str) -> bytes:
    """One export request, without a line feed. ``version`` is eventctx's."""
    scope = _json({"name": conv.SCOPE, "version": version})
    parts = ",".join([_otlp_span(span) for span in spans])
    return (
        f'{{"resourceSpans":[{{"resource":{{"attributes":{_attributes(resource)}}},'
        f'"scopeSpans":[{{"scope":{scope},"spans":[{parts}],'
        f'"schemaUrl":{_json(conv.SCHEMA_URL)}}}]}}]}}'
    ).encode()


def _otlp_span(span: Span) -> str:
    parent = "" if span.parent_span_id is None else f',"parentSpanId":{_json(span.parent_span_id)}'
    events = "" if not span.events else f',"events":[{",".join(map(_otlp_event, span.events))}]'
    links = "" if not span.links else f',"links":[{",".join(map(_otlp_link, span.links))}]'
    status = ""
    if span.status == "error":
        message = {} if span.message is None else {"message": span.message}
        status = f',"status":{_json({**_ERROR, **message})}'
    return (
        f'{{"traceId":{_json(span.trace_id)},"spanId":{_json(span.span_id)},"flags":{_LOCAL},'
        f'"name":{_otlp_text(span.name)},"kind":{_KINDS[span.kind]},'
        f'"startTimeUnixNano":"{span.start}","endTimeUnixNano":"{span.end}",'
        f'"attributes":{_attributes(span.attributes)}{parent}{events}{links}{status}}}'
    )


def _otlp_link(link: SpanLink) -> str:
    return (
        f'{{"traceId":{_json(link.trace_id)},"spanId":{_json(link.span_id)},"flags":{_LOCAL},'
        f'"attributes":{_attributes(link.attributes)}}}'
    )


def _otlp_event(event: SpanEvent) -> str:
    return (
        f'{{"timeUnixNano":"{event.time}","name":{_otlp_text(event.name)},'
        f'"attributes":{_attributes(event.attributes)}}}'
    )


def _attributes(attributes: Mapping[str, Attribute]) -> str:
    parts: list[str] = []
    for name, value in attributes.items():
        kind = type(value)
        if kind is int:
            parts.append(f'{_int_key(name)}{value}"}}}}')
        elif kind is bool or (isinstance(value, str) and len(value) < _SHORT_TEXT):
            parts.append(_short_attribute(name, value))
        else:
            parts.append(_attribute(name, value))
    return f"[{','.join(parts)}]"


def _attribute(name: str, value: Attribute) -> str:
    return _json({"key": name, "value": _value(value)})


def _value(value: Attribute) -> dict[str, Any]:
    kind = type(value)
    if kind is str:
        return {"stringValue": value}
    if kind is bool:
        return {"boolValue": value}
    if kind is float:
        return {"doubleValue": value}
    assert isinstance(value, tuple)  # noqa: S101 - an attribute is nothing else
    return {"arrayValue": {"values": [{"stringValue": item} for item in value]}}


@lru_cache(maxsize=1024)
def _int_key(name: str) -> str:
    """The beginning of a whole number's attribute: there are a few hundred names."""
    return f'{{"key":{_json(name)},"value":{{"intValue":"'


@lru_cache(maxsize=1024)
def _short_attribute(name: str, value: Attribute) -> str:
    """An attribute with a short text or a bool: ids of a session or turn, models, outcomes."""
    return _attribute(name, value)


@lru_cache(maxsize=1024)
def _otlp_text(text: str) -> str:
    """The name of a span or an event as JSON; there are few."""
    return _json(text)


# -- Jaeger's JSON -------------------------------------------------------------------------------

_PROCESS: Final = "p1"
_MAX_SAFE: Final = 2**53 - 1
_MICROSECOND: Final = 1_000

JaegerSpan = bytes
"""One span of a trace as JSON."""


def jaeger_span(span: Span, version: str) -> JaegerSpan:
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


def jaeger_file(
    traces: Mapping[str, Iterable[JaegerSpan]], resource: Mapping[str, Attribute]
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
