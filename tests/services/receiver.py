"""A receiver of OTLP spans in this process, by gRPC and HTTP, that can misbehave by a script.

    with Receiver() as receiver:
        receiver.answer(Refuse(503), Accept())        # the first export, the second; then accept
        ...                                           # send to receiver.http or receiver.grpc

Every request takes the next answer of the script; when the script is at its end, requests are
accepted. Both protocols share the script and the spans.
"""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.services.received import ReceivedSpan, spans_of


class Accept(NamedTuple):
    """Keep the spans and answer with success."""


class Refuse(NamedTuple):
    """Keep nothing and answer an error: an HTTP status, by gRPC the code that OTLP pairs with it.

    ``retry_after`` is in seconds: the header Retry-After, by gRPC the RetryInfo.
    """

    status: int = 503
    retry_after: int | None = None


class Hang(NamedTuple):
    """Answer nothing until `Receiver.release`, or for ``seconds`` at most; then accept."""

    seconds: float = 30.0


class CloseConnection(NamedTuple):
    """Keep nothing and close the connection; gRPC, which shares one, ends the call unanswered."""


class Partial(NamedTuple):
    """Keep all spans but the last ``rejected`` ones: a success that reports the rejected ones.

    With ``rejected=0`` it is a warning.
    """

    rejected: int
    message: str = "rejected by the test"


class Say(NamedTuple):
    """Keep nothing and answer by HTTP what is no OTLP answer, or a part of one."""

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    missing: int = 0
    """Bytes that the header Content-Length promises and the body has not."""


_PROTOBUF = "application/x-protobuf"
_ENCODINGS = {"identity": bytes, "gzip": gzip.decompress, "deflate": zlib.decompress}
Answer = Accept | Refuse | Hang | CloseConnection | Partial | Say

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


class Export(NamedTuple):
    """One request as it came in, with the answer to it.

    ``spans`` are those sent, whether they were kept or not. Names of headers are in lower case.
    """

    spans: tuple[ReceivedSpan, ...]
    headers: Mapping[str, str]
    answer: Answer


class Receiver:
    def __init__(self, certificates: Path | None = None) -> None:
        """Listen with TLS, to clients with a certificate, if there is a folder of certificates."""
        self._certificates = certificates
        self._changed = threading.Condition()
        self._exports: list[Export] = []
        self._kept: list[ReceivedSpan] = []
        self._script: deque[Answer] = deque()
        self._always: Answer = Accept()
        self._releases = 0
        self._most_bytes: int | None = None

    def __enter__(self) -> Receiver:
        self._http = _HttpServer(self._take, self._certificates)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self._grpc = grpc.server(ThreadPoolExecutor(8, "receiver"))
        service.add_TraceServiceServicer_to_server(_GrpcService(self._take), self._grpc)
        if self._certificates is None:
            self._grpc_port = self._grpc.add_insecure_port("127.0.0.1:0")
        else:
            names = ("server-key.pem", "server.pem", "ca.pem")
            key, own, authority = ((self._certificates / one).read_bytes() for one in names)
            credentials = grpc.ssl_server_credentials([(key, own)], authority, True)
            self._grpc_port = self._grpc.add_secure_port("127.0.0.1:0", credentials)
        self._grpc.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Let go of all who hang, and stop listening; what was received stays."""
        self.release()
        self._http.close()
        self._thread.join()
        self._grpc.stop(grace=None).wait()

    @property
    def grpc(self) -> str:
        """The endpoint for OTLP over gRPC, as the official exporter takes it."""
        return f"http://127.0.0.1:{self._grpc_port}"

    @property
    def http(self) -> str:
        """The endpoint for OTLP over HTTP, with the path of the traces."""
        return f"http://127.0.0.1:{self._http.server_port}/v1/traces"

    @property
    def exports(self) -> tuple[Export, ...]:
        """Every request so far, refused ones too, in the order in which they came in."""
        with self._changed:
            return tuple(self._exports)

    @property
    def spans(self) -> tuple[ReceivedSpan, ...]:
        """The spans that were kept, in the order in which they were."""
        with self._changed:
            return tuple(self._kept)

    def answer(self, *script: Answer) -> None:
        """Give these answers to the next requests, one after the other; then the former one."""
        with self._changed:
            self._script.extend(script)

    def always(self, answer: Answer) -> None:
        """Give this answer whenever the script is at its end; ``always(Accept())`` heals."""
        with self._changed:
            self._always = answer

    def take_at_most(self, size: int) -> None:
        """Refuse every request of more bytes before compression, as limits of receivers do."""
        with self._changed:
            self._most_bytes = size

    def release(self) -> None:
        with self._changed:
            self._releases += 1
            self._changed.notify_all()

    def wait_for_spans(self, number: int, seconds: float = 60.0) -> tuple[ReceivedSpan, ...]:
        """The spans kept, as soon as there are so many. Raises TimeoutError."""
        return self._wait(lambda: self._kept, number, seconds, "spans kept")

    def wait_for_exports(self, number: int, seconds: float = 60.0) -> tuple[Export, ...]:
        """The requests, as soon as so many came in, answered or not. Raises TimeoutError."""
        return self._wait(lambda: self._exports, number, seconds, "exports")

    def _wait(
        self, held: Callable[[], list[Any]], number: int, seconds: float, what: str
    ) -> tuple[Any, ...]:
        with self._changed:
            if not self._changed.wait_for(lambda: len(held()) >= number, seconds):
                raise TimeoutError(f"{len(held())} of {number} {what} after {seconds:g} s")
            return tuple(held())

    def _take(self, request: ExportTraceServiceRequest, headers: Mapping[str, str]) -> Answer:
        spans = spans_of(request)
        with self._changed:
            answer = self._script.popleft() if self._script else self._always
            if self._most_bytes is not None and request.ByteSize() > self._most_bytes:
                answer = Refuse(413)
            self._exports.append(Export(spans, headers, answer))
            self._changed.notify_all()
            if isinstance(answer, Hang):
                before = self._releases
                self._changed.wait_for(lambda: self._releases > before, answer.seconds)
        kept = len(spans)
        if isinstance(answer, Partial):
            kept -= answer.rejected
        elif isinstance(answer, Refuse | CloseConnection | Say):
            kept = 0
        with self._changed:
            self._kept.extend(spans[: max(kept, 0)])
            self._changed.notify_all()
        return answer


_Take = Callable[[ExportTraceServiceRequest, Mapping[str, str]], Answer]


def _success(answer: Answer) -> ExportTraceServiceResponse:
    response = ExportTraceServiceResponse()
    if isinstance(answer, Partial):
        response.partial_success.rejected_spans = answer.rejected
        response.partial_success.error_message = answer.message
    return response


class _GrpcService(service.TraceServiceServicer):
    def __init__(self, take: _Take) -> None:
        self._take = take

    def Export(  # noqa: N802 - the name is the protocol's
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        headers = {key.lower(): str(value) for key, value in context.invocation_metadata()}
        answer = self._take(request, headers)
        if isinstance(answer, Refuse):
            if answer.retry_after is not None:
                info = RetryInfo(retry_delay=Duration(seconds=answer.retry_after))
                told = ("google.rpc.retryinfo-bin", info.SerializeToString())
                context.set_trailing_metadata([told])
            large = answer.status == 413
            words = "Received message larger than max" if large else "refused by the test"
            context.abort(_CODES[answer.status], words)
        if isinstance(answer, CloseConnection):
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        return _success(answer)


class _HttpServer(ThreadingHTTPServer):
    # Connections are kept open, so their threads end only when the server closes them.
    daemon_threads = False

    def __init__(self, take: _Take, certificates: Path | None) -> None:
        self.take = take
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", 0), _HttpHandler)
        if certificates is not None:
            context = ssl.create_default_context(
                ssl.Purpose.CLIENT_AUTH, cafile=str(certificates / "ca.pem")
            )
            context.load_cert_chain(certificates / "server.pem", certificates / "server-key.pem")
            context.verify_mode = ssl.CERT_REQUIRED
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def close(self) -> None:
        self.shutdown()
        with self._guard:
            left = list(self._open)
        for connection in left:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()


class _HttpHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HttpServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/traces":
            return self._error(404, f"no such path: {self.path}")
        if self.headers.get("Content-Type") != _PROTOBUF:
            return self._error(415, f"not protobuf: {self.headers.get('Content-Type')}")
        try:
            unpack = _ENCODINGS[self.headers.get("Content-Encoding", "identity")]
            request = ExportTraceServiceRequest.FromString(unpack(body))
        except (DecodeError, OSError, EOFError, zlib.error, KeyError) as error:
            return self._error(400, f"cannot be decoded: {error}")
        headers = {key.lower(): value for key, value in self.headers.items()}
        answer = self.server.take(request, headers)
        if isinstance(answer, CloseConnection):
            self.close_connection = True
            return None
        if isinstance(answer, Refuse):
            return self._error(answer.status, "refused by the test", answer.retry_after)
        if isinstance(answer, Say):
            self._reply(answer)
            self.close_connection = True
            return None
        return self._reply(Say(200, _success(answer).SerializeToString(), _PROTOBUF))

    def _error(self, status: int, message: str, retry_after: int | None = None) -> None:
        more = () if retry_after is None else (("Retry-After", str(retry_after)),)
        self._reply(Say(status, Status(message=message).SerializeToString(), _PROTOBUF, more))

    def _reply(self, answer: Say) -> None:
        with suppress(ConnectionError):  # whoever hung up while it was kept waiting
            self.send_response(answer.status)
            if answer.content_type is not None:
                self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body) + answer.missing))
            for key, value in answer.headers:
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Write nothing to standard error."""
