"""Files of a session's trace: Jaeger's own form, and OTLP JSON as OpenTelemetry encodes it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource

from eventctx.hooks.otlp import readable
from eventctx.log import events as ev
from eventctx.projections.trace.files import jaeger_file, jaeger_span, otlp_line
from eventctx.projections.trace.fold import fold
from eventctx.projections.trace.spans import Span, SpanEvent
from tests.hooks.given import START, Session, span, whole_turn

RESOURCE = {"service.name": "eventctx", "host.id": "eventctx"}
TraceId = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
SpanId = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Base of what Jaeger's interface reads; anything else in the file is an error."""


class Tag(Strict, tag_field="type"):
    key: Annotated[str, Meta(min_length=1)]


class Text(Tag, tag="string"):
    value: str


class Flag(Tag, tag="bool"):
    value: bool


class Whole(Tag, tag="int64"):
    value: (
        Annotated[int, Meta(ge=-(2**53) + 1, lt=2**53)] | Annotated[str, Meta(pattern="^-?[0-9]+$")]
    )


class Real(Tag, tag="float64"):
    value: float


AnyTag = Text | Flag | Whole | Real


class Reference(Strict):
    ref_type: Annotated[str, Meta(pattern="^(CHILD_OF|FOLLOWS_FROM)$")]
    trace_id: TraceId = msgspec.field(name="traceID")
    span_id: SpanId = msgspec.field(name="spanID")


class Log(Strict):
    timestamp: Annotated[int, Meta(gt=0)]
    fields: list[AnyTag]


class JaegerSpan(Strict):
    operation_name: Annotated[str, Meta(min_length=1)]
    references: list[Reference]
    start_time: Annotated[int, Meta(gt=0)]
    duration: Annotated[int, Meta(ge=0)]
    tags: list[AnyTag]
    logs: list[Log]
    warnings: None
    trace_id: TraceId = msgspec.field(name="traceID")
    span_id: SpanId = msgspec.field(name="spanID")
    process_id: str = msgspec.field(name="processID")


class Process(Strict):
    service_name: Annotated[str, Meta(min_length=1)]
    tags: list[AnyTag]


class Trace(Strict):
    spans: Annotated[list[JaegerSpan], Meta(min_length=1)]
    processes: dict[str, Process]
    warnings: None
    trace_id: TraceId = msgspec.field(name="traceID")


class JaegerFile(Strict):
    data: list[Trace]
    total: int
    limit: int
    offset: int
    errors: None


def everything() -> list[Span]:
    """Turns with a compaction, parallel tools, an error, a cancellation, and an end that lacks."""
    session = Session()
    whole_turn(session)
    whole_turn(session, "t2", 0x200)
    session.add(ev.PromptSubmit(number=3), span(0x300), turn="t3")
    session.add(ev.ProviderRequest(), span(0x302), span(0x300), turn="t3")
    session.add(ev.ProviderResponse(), span(0x302), span(0x300), turn="t3")
    session.add(ev.ToolPre(name="quick"), span(0x303), span(0x302), turn="t3")
    session.add(ev.ToolPost(name="quick"), span(0x303), span(0x302), turn="t3")
    session.add(ev.ToolPre(name="slow"), span(0x301), span(0x300), turn="t3")
    session.add(
        ev.ToolError(name="slow", error_type="CancelledError", status="cancelled"),
        span(0x301),
        span(0x300),
        turn="t3",
    )
    return list(fold(session.records))


def as_jaeger(spans: Iterable[Span]) -> bytes:
    traces: dict[str, list[bytes]] = {}
    for one in spans:
        traces.setdefault(one.trace_id, []).append(jaeger_span(one, "1.0"))
    return b"".join(jaeger_file(traces, RESOURCE))


def read(data: bytes) -> JaegerFile:
    return msgspec.json.decode(data, type=JaegerFile)


def test_jaegers_interface_can_read_every_span_of_a_jaeger_file() -> None:
    spans = everything()
    file = read(as_jaeger(spans))
    assert len(file.data) == 3
    found = {one.span_id: one for trace in file.data for one in trace.spans}
    assert len(found) == len(spans)
    for trace in file.data:
        for one in trace.spans:
            assert one.trace_id == trace.trace_id
            assert {reference.span_id for reference in one.references} <= found.keys()
            assert trace.processes[one.process_id].service_name == "eventctx"
    for span_ in spans:
        one = found[span_.span_id]
        assert one.operation_name == span_.name
        assert one.start_time == span_.start // 1000
        assert one.duration == span_.end // 1000 - span_.start // 1000
        tags = {tag.key: tag.value for tag in one.tags}
        for name, value in span_.attributes.items():
            tag = json.dumps(value, separators=(",", ":")) if isinstance(value, tuple) else value
            assert tags[name] == tag
        assert tags["span.kind"] == span_.kind
        assert [(one.ref_type, one.trace_id, one.span_id) for one in one.references] == [
            *([("CHILD_OF", span_.trace_id, span_.parent_span_id)] if span_.parent_span_id else []),
            *[("FOLLOWS_FROM", link.trace_id, link.span_id) for link in span_.links],
        ]
        assert ("error" in tags) == (span_.status == "error")
        assert [log.fields[0].value for log in one.logs] == [event.name for event in span_.events]


def test_a_file_of_no_traces_is_a_file_all_the_same() -> None:
    assert read(b"".join(jaeger_file({}, RESOURCE))).data == []


def officially(spans: list[Span]) -> Any:
    """What OpenTelemetry's own encoder makes of the spans, by the JSON mapping of OTLP."""
    request = encode_spans([readable(one, Resource(RESOURCE)) for one in spans])
    return _hex(MessageToDict(request, use_integers_for_enums=True))


def _hex(value: Any) -> Any:
    if isinstance(value, list):
        return [_hex(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64decode(item).hex()
        if key in ("traceId", "spanId", "parentSpanId")
        else _hex(item)
        for key, item in value.items()
    }


def ours(spans: list[Span]) -> Any:
    from eventctx.version import __version__

    return json.loads(otlp_line(spans, RESOURCE, __version__))


def test_an_otlp_line_says_what_opentelemetrys_own_encoder_says() -> None:
    spans = everything()
    expected = officially(spans)
    (scope,) = expected["resourceSpans"][0]["scopeSpans"]
    for one in scope["spans"]:
        if one["status"] == {}:
            del one["status"]
    assert ours(spans) == expected
    assert {len(one.links) for one in spans} == {0, 1}


_VALUES = st.one_of(
    st.text(max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.text(max_size=5), max_size=3).map(tuple),
)


@given(st.dictionaries(st.text(min_size=1, max_size=10), _VALUES, max_size=6), st.text(max_size=20))
def test_any_attribute_survives_both_files(attributes: dict[str, Any], text: str) -> None:
    events = (SpanEvent("e", START, attributes),)
    ids, times = ("a" * 32, "b" * 16, None), (START, START + 5)
    one = Span(f"n{text}", "client", *ids, *times, "error", text, attributes, events)
    (sent,) = ours([one])["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert {pair["key"]: _value(pair["value"]) for pair in sent["attributes"]} == attributes
    assert sent["status"]["message"] == text
    (trace,) = read(as_jaeger([one])).data
    tags = {tag.key: tag.value for tag in trace.spans[0].logs[0].fields[1:]}
    assert {name: _told(value) for name, value in attributes.items()} == tags


def _value(attribute: dict[str, Any]) -> Any:
    ((kind, value),) = attribute.items()
    if kind == "intValue":
        return int(value)
    if kind == "doubleValue":
        return float(value)
    if kind == "arrayValue":
        return tuple(item["stringValue"] for item in value["values"])
    return value


def _told(value: Any) -> Any:
    if isinstance(value, tuple):
        return msgspec.json.encode(value).decode()
    if type(value) is int and not -(2**53) < value < 2**53:
        return str(value)
    return value
