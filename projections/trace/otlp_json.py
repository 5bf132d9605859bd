"""Spans as OTLP JSON, the OpenTelemetry protocol's format for files.

In the protocol's JSON mapping ids are hex, 64-bit integers are strings, and enumerations are
numbers. Every line of a file is one export request (``{"resourceSpans": […]}``), as the
OpenTelemetry Collector writes and reads them. Source: opentelemetry-proto, docs/specification.md,
"JSON Protobuf Encoding".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attribute
from eventctx.projections.trace.spans import Span, SpanEvent, SpanLink

_KINDS: Final = {"internal": 1, "client": 3}
_ERROR: Final = {"code": 2}
_LOCAL: Final = 0x100
"""Known not to have a remote parent (the protocol's SpanFlags), as the SDK's encoder sets it."""

_SHORT: Final = 48
"""Characters below which a text's JSON is remembered: room for an id, none for a digest."""

_encoder = msgspec.json.Encoder()


def _json(value: Any) -> str:
    return _encoder.encode(value).decode()


def export_line(spans: Iterable[Span], resource: Mapping[str, Attribute], version: str) -> bytes:
    """One export request, without a line feed. ``version`` is eventctx's."""
    scope = _json({"name": conv.SCOPE, "version": version})
    parts = ",".join([_span(span) for span in spans])
    return (
        f'{{"resourceSpans":[{{"resource":{{"attributes":{_attributes(resource)}}},'
        f'"scopeSpans":[{{"scope":{scope},"spans":[{parts}],'
        f'"schemaUrl":{_json(conv.SCHEMA_URL)}}}]}}]}}'
    ).encode()


def _span(span: Span) -> str:
    parent = "" if span.parent_span_id is None else f',"parentSpanId":{_json(span.parent_span_id)}'
    events = "" if not span.events else f',"events":[{",".join(map(_event, span.events))}]'
    links = "" if not span.links else f',"links":[{",".join(map(_link, span.links))}]'
    status = ""
    if span.status == "error":
        message = {} if span.message is None else {"message": span.message}
        status = f',"status":{_json({**_ERROR, **message})}'
    return (
        f'{{"traceId":{_json(span.trace_id)},"spanId":{_json(span.span_id)},"flags":{_LOCAL},'
        f'"name":{_text(span.name)},"kind":{_KINDS[span.kind]},'
        f'"startTimeUnixNano":"{span.start}","endTimeUnixNano":"{span.end}",'
        f'"attributes":{_attributes(span.attributes)}{parent}{events}{links}{status}}}'
    )


def _link(link: SpanLink) -> str:
    return (
        f'{{"traceId":{_json(link.trace_id)},"spanId":{_json(link.span_id)},"flags":{_LOCAL},'
        f'"attributes":{_attributes(link.attributes)}}}'
    )


def _event(event: SpanEvent) -> str:
    return (
        f'{{"timeUnixNano":"{event.time}","name":{_text(event.name)},'
        f'"attributes":{_attributes(event.attributes)}}}'
    )


def _attributes(attributes: Mapping[str, Attribute]) -> str:
    parts: list[str] = []
    for name, value in attributes.items():
        kind = type(value)
        if kind is int:
            parts.append(f'{_int_key(name)}{value}"}}}}')
        elif kind is bool or (isinstance(value, str) and len(value) < _SHORT):
            parts.append(_short(name, value))
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
def _short(name: str, value: Attribute) -> str:
    """An attribute with a short text or a bool: ids of a session or turn, models, outcomes."""
    return _attribute(name, value)


@lru_cache(maxsize=1024)
def _text(text: str) -> str:
    """The name of a span or an event as JSON; there are few."""
    return _json(text)
