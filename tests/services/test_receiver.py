"""The receiver in this process: it keeps what the official exporters send, and misbehaves."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from tests.services.given import CHAT, LINKED, ROOT, START, new_trace_id, turn
from tests.services.received import ReceivedEvent, ReceivedLink, ReceivedSpan
from tests.services.receiver import (
    Accept,
    Hang,
    Partial,
    Receiver,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
DONE = SpanExportResult.SUCCESS


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


@pytest.fixture(params=["grpc", "grpc gzip", "http", "http gzip", "http deflate"])
def exporter(request: pytest.FixtureRequest, receiver: Receiver) -> Iterator[SpanExporter]:
    made = of_kind(request.param, receiver)
    yield made
    made.shutdown()


def of_kind(kind: str, receiver: Receiver, timeout: float = 10) -> SpanExporter:
    protocol, _, compression = kind.partition(" ")
    if protocol == "grpc":
        packed = grpc.Compression.Gzip if compression else grpc.Compression.NoCompression
        return GrpcExporter(
            endpoint=receiver.grpc, insecure=True, compression=packed, timeout=timeout
        )
    return HttpExporter(
        endpoint=receiver.http, compression=Compression(compression or "none"), timeout=timeout
    )


def test_a_span_is_kept_as_it_was_sent(receiver, exporter):
    assert exporter.export(turn(TRACE)) is DONE
    root, chat = receiver.spans
    assert root == ReceivedSpan(
        trace_id=TRACE,
        span_id=ROOT,
        parent_span_id=None,
        name="invoke_agent coder",
        kind="internal",
        start_ns=START,
        end_ns=START + 5_000_001_234,
        status="unset",
        status_message="",
        attributes={
            "gen_ai.conversation.compacted": True,
            "eventctx.iteration": 0,
            "eventctx.compaction.ratio": 0.25,
            "gen_ai.conversation.id": "s1",
            "names": ("a", "b"),
        },
        events=(
            ReceivedEvent(START + 1_500, "context:pre_compact", {"position": 3, "vetoed": False}),
            ReceivedEvent(START + 2_500, "a later one", {}),
        ),
        links=(),
        resource={"service.name": "test", "host.count": 2},
        scope_name="eventctx",
        scope_version="1.2.3",
        schema_url="https://opentelemetry.io/schemas/1.40.0",
    )
    assert (chat.span_id, chat.parent_span_id, chat.kind) == (CHAT, ROOT, "client")
    assert (chat.status, chat.status_message) == ("error", "try later")
    assert chat.links == (ReceivedLink(*LINKED, {"why": "fork"}),)
    assert type(root.attributes["gen_ai.conversation.compacted"]) is bool
    assert type(root.attributes["eventctx.iteration"]) is int


def test_every_export_is_listed_with_its_protocol_headers_and_answer(receiver):
    for kind in ("grpc", "http gzip"):
        one = of_kind(kind, receiver)
        assert one.export(turn(new_trace_id())) is DONE
        one.shutdown()
    by_grpc, by_http = receiver.exports
    assert (by_grpc.protocol, by_http.protocol) == ("grpc", "http")
    assert (len(by_grpc.spans), len(by_http.spans)) == (2, 2)
    assert by_grpc.answer == by_http.answer == Accept()
    assert by_http.headers["content-encoding"] == "gzip"
    assert "user-agent" in by_grpc.headers
    assert receiver.spans == by_grpc.spans + by_http.spans


@pytest.mark.parametrize("kind", ["grpc", "http"])
def test_one_who_hangs_is_answered_when_released(receiver, kind):
    receiver.answer(Hang(30))
    one = of_kind(kind, receiver, timeout=60)
    results: list[SpanExportResult] = []
    thread = threading.Thread(target=lambda: results.append(one.export(turn(TRACE))))
    thread.start()
    (export,) = receiver.wait_for_exports(1)
    assert export.answer == Hang(30)
    assert (receiver.spans, results) == ((), [])
    receiver.release()
    assert len(receiver.wait_for_spans(2)) == 2
    thread.join(60)
    assert results == [DONE]
    one.shutdown()


def test_a_hang_ends_by_itself(receiver):
    receiver.answer(Hang(0.2))
    status, _, _ = post(receiver, packed())
    assert status == 200
    assert len(receiver.spans) == 2


def test_stopping_does_not_wait_for_those_who_hang(caplog):
    receiver = Receiver().start()
    receiver.always(Hang(600))
    made = [of_kind(kind, receiver, timeout=2) for kind in ("grpc", "http")]
    threads = [threading.Thread(target=one.export, args=(turn(TRACE),)) for one in made]
    for thread in threads:
        thread.start()
    receiver.wait_for_exports(2)
    begun = time.monotonic()
    receiver.stop()
    assert time.monotonic() - begun < 60
    for one in made:
        one.shutdown()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_partial_success_keeps_the_rest_and_tells_how_many_it_lost(receiver):
    receiver.answer(Partial(1, "too long"), Partial(0, "old schema"))
    _, _, body = post(receiver, packed())
    lost = ExportTraceServiceResponse.FromString(body).partial_success
    assert (lost.rejected_spans, lost.error_message) == (1, "too long")
    assert [span.span_id for span in receiver.spans] == [ROOT]
    with grpc.insecure_channel(urlsplit(receiver.grpc).netloc) as channel:
        warned = TraceServiceStub(channel).Export(encode_spans(turn(TRACE)), timeout=10)
    assert warned.partial_success.rejected_spans == 0
    assert warned.partial_success.error_message == "old schema"
    assert [span.span_id for span in receiver.spans] == [ROOT, ROOT, CHAT]


@pytest.mark.parametrize(
    ("status", "path", "headers", "body"),
    [
        (404, "/v1/metrics", {}, b""),
        (415, "/v1/traces", {"Content-Type": "application/json"}, b"{}"),
        (400, "/v1/traces", {}, b"no protobuf"),
        (400, "/v1/traces", {"Content-Encoding": "gzip"}, b"no gzip"),
        (400, "/v1/traces", {"Content-Encoding": "gzip"}, gzip.compress(b"x" * 50, mtime=0)[:-9]),
        (400, "/v1/traces", {"Content-Encoding": "br"}, b""),
    ],
)
def test_what_is_no_export_is_refused_and_not_listed(receiver, status, path, headers, body):
    assert post(receiver, body, path, headers)[0] == status
    assert receiver.exports == ()
    assert post(receiver, packed())[0] == 200


def test_waiting_for_spans_that_do_not_come_has_an_end(receiver):
    with pytest.raises(TimeoutError, match="1 spans kept, there are 0"):
        receiver.wait_for_spans(1, seconds=0.2)


def packed() -> bytes:
    data: bytes = encode_spans(turn(TRACE)).SerializeToString()
    return data


def post(
    receiver: Receiver,
    body: bytes,
    path: str = "/v1/traces",
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection(urlsplit(receiver.http).netloc, timeout=10)
    try:
        sent = {"Content-Type": "application/x-protobuf"} | (headers or {})
        connection.request("POST", path, body, sent)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        connection.close()
