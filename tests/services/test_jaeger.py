"""Spans sent to a real Jaeger by the official exporters, and read back from it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from urllib.error import URLError

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from tests.services.given import CHAT, LINKED, ROOT, START, new_trace_id, turn
from tests.services.jaeger import Jaeger, Ports, free_ports, start
from tests.services.jaeger_binary import find
from tests.services.jaeger_query import JaegerQuery, QueryRefused, SeenSpan, wait_for

Send = Callable[[list[ReadableSpan]], None]


@pytest.fixture(params=["grpc", "http"])
def send(request: pytest.FixtureRequest, jaeger: Jaeger) -> Send:
    exporter: SpanExporter
    if request.param == "grpc":
        exporter = GrpcExporter(endpoint=jaeger.grpc, insecure=True)
    else:
        exporter = HttpExporter(endpoint=jaeger.http)
    request.addfinalizer(exporter.shutdown)

    def export(spans: list[ReadableSpan]) -> None:
        assert exporter.export(spans) is SpanExportResult.SUCCESS

    return export


@pytest.fixture
def query(jaeger: Jaeger) -> JaegerQuery:
    return JaegerQuery(jaeger.query)


@pytest.fixture
def service() -> str:
    return f"service/{secrets.token_hex(4)}"


def arrived(query: JaegerQuery, trace_id: str, number: int = 2) -> tuple[SeenSpan, ...]:
    def all_there() -> tuple[SeenSpan, ...]:
        spans = query.spans(trace_id)
        return spans if len(spans) >= number else ()

    return wait_for(all_there, what=f"{number} spans of {trace_id}")


def test_events_and_links_come_back(send, query, service):
    trace_id = new_trace_id()
    send(turn(trace_id, service))
    root, chat = arrived(query, trace_id)
    assert root.events == (
        (START // 1_000 + 1, "context:pre_compact", {"position": 3, "vetoed": False}),
        (START // 1_000 + 2, "a later one", {}),
    )
    assert (root.links, chat.links) == ((), (LINKED,))


def test_nanoseconds_come_back_as_otlp(send, query, service):
    trace_id = new_trace_id()
    send(turn(trace_id, service))
    arrived(query, trace_id)
    resources = query.otlp(trace_id)["resourceSpans"]
    spans = [span for one in resources for scope in one["scopeSpans"] for span in scope["spans"]]
    ends = {span["spanId"]: int(span["endTimeUnixNano"]) for span in spans}
    assert ends == {ROOT: START + 5_000_001_234, CHAT: START + 2_001_000}


def test_a_trace_is_found_by_an_attribute_of_any_type(send, query, service):
    trace_id = new_trace_id()
    send(turn(trace_id, service))
    arrived(query, trace_id)

    def found(**how: object) -> list[str]:
        return [trace["traceID"] for trace in query.find(service, **how)]

    assert found() == [trace_id]
    assert found(operation="chat m1") == [trace_id]
    assert found(operation="chat m2") == []
    for tags in (
        {"gen_ai.conversation.compacted": True},
        {"gen_ai.conversation.compacted": "true"},
        {"eventctx.iteration": 0},
        {"eventctx.compaction.ratio": 0.25},
        {"names": ("a", "b")},
        {"position": 3},  # of an event
        {"host.count": 2},  # of the resource
        {"gen_ai.conversation.id": "s1", "eventctx.iteration": 0},
    ):
        assert found(tags=tags) == [trace_id], tags
    for tags in (
        {"gen_ai.conversation.compacted": False},
        {"gen_ai.conversation.id": "s2"},
        {"gen_ai.conversation.id": "s1", "tokens": 0},  # no single span has both
    ):
        assert found(tags=tags) == [], tags
    assert found(start_ns=START, end_ns=START + 1) == [trace_id]
    assert found(start_ns=START + 2_000_000) == []
    assert found(end_ns=START - 1_000) == []


def test_a_trace_that_was_never_sent_is_none(query):
    assert query.trace(new_trace_id()) is None
    assert query.spans(new_trace_id()) == ()


def test_a_query_that_jaeger_refuses_tells_what_it_said(query):
    with pytest.raises(QueryRefused, match="service"):
        query.find("")
    with pytest.raises(QueryRefused, match="no such endpoint"):
        query.trace("../nothing/here")


def test_a_port_that_was_taken_meanwhile_is_replaced(jaeger):
    choices: list[Ports] = []

    def first_a_taken_one() -> Ports:
        ports = free_ports()
        choices.append(ports._replace(otlp_http=jaeger.ports.query_http) if not choices else ports)
        return choices[-1]

    with start(find(), choose=first_a_taken_one) as other:
        assert other.ports == choices[1]
        assert JaegerQuery(other.query).services() == []
    assert len(choices) == 2


def test_a_stopped_jaeger_listens_no_more(jaeger):
    with start(find()) as other:
        assert JaegerQuery(other.query).services() == []
        assert other.pid != jaeger.pid
    with pytest.raises(URLError, match="refused"):
        JaegerQuery(other.query).services()
    with pytest.raises(ProcessLookupError):
        os.kill(other.pid, 0)


def test_waiting_has_an_end_and_tells_what_it_saw():
    with pytest.raises(TimeoutError, match=r"0\.2 s for three; last: \[\]"):
        wait_for(list, 0.2, "three")
