"""Delivers spans to a receiver of OTLP: in requests that it takes, with retries, and accounted for.

Invariant: every span of a batch is counted once, as arrived, rejected or failed, and a loss has the
receiver's own reason. The status of an answer is not enough for that: a web interface answers any
request with 200 and a page, and a collector that takes a batch may reject spans of it (OTLP's
partial success). OpenTelemetry's own exporters report one bit of an answer, so only their encoder
is used here (docs/decisions/0055-answers-of-otlp-are-read.md).
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from eventctx.text import clip, escape_breaks

if TYPE_CHECKING:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as EncodedSpan

EXCERPT: Final = 300
"""Most characters of a receiver's own words in a message of ours."""

Kind = Literal["taken", "again", "never", "too_large", "unreached"]
"""``unreached``: there was no connection, so the receiver knows nothing of the request."""

MOST_BYTES: Final = 4 * 1024 * 1024 - 4096
"""Most bytes of an encoded request: by default, servers of gRPC refuse more than 4 MiB."""

LEAST_BYTES: Final = 64 * 1024
"""A receiver to which less than this is too much takes nothing; no request is divided further."""

ATTEMPTS: Final = 6
"""Most times that a request is sent: a receiver may want to be asked again without a pause."""


class ExportAnswer(NamedTuple):
    """The outcome of one attempt.

    ``says`` is why it failed; of a request that was taken, what the receiver remarks. ``rejected``:
    spans of a request that was taken. ``wait``: seconds after which the receiver wants to be asked
    again, where it says so.
    """

    kind: Kind
    says: str = ""
    rejected: int = 0
    wait: float | None = None


class Delivery(NamedTuple):
    """The account of a batch. Every span of it is counted once.

    ``rejected``: spans that the receiver will not take however often they are sent, while it takes
    others. ``failed``: spans that were sent in vain, and the later ones, which were not sent.
    ``reason`` is why the first of these is lost; where none is, what the receiver remarks.
    """

    arrived: int = 0
    rejected: int = 0
    failed: int = 0
    reason: str = ""

    @property
    def lost(self) -> int:
        """The number of spans that did not arrive."""
        return self.rejected + self.failed

    def then(self, later: Delivery) -> Delivery:
        """This delivery and a later one as one."""
        told = self.reason if self.reason and (self.lost or not later.lost) else later.reason
        return Delivery(
            self.arrived + later.arrived,
            self.rejected + later.rejected,
            self.failed + later.failed,
            told,
        )


@runtime_checkable
class Delivers(Protocol):
    """An exporter that says what became of each batch."""

    def deliver(self, spans: Sequence[ReadableSpan]) -> Delivery:
        """Send spans, and wait for the answers. Never raises."""
        ...


class Transport(Protocol):
    """A connection to one receiver."""

    def post(self, request: bytes, seconds: float) -> ExportAnswer:
        """Send an encoded request, and wait for its answer for at most ``seconds``."""
        ...

    def close(self) -> None:
        """Release the connection; a request under way may fail."""
        ...


# -- sending -------------------------------------------------------------------------------------


class DeliveringExporter(SpanExporter):
    """An exporter of OTLP that reads the answers. Closes its transport at ``shutdown``.

    ``timeout``: seconds for one request, retries included. ``hasty``: if there is no connection to
    be had before a first request was taken, give up at once.
    """

    def __init__(self, transport: Transport, *, timeout: float, hasty: bool = False) -> None:
        # Not at the top: whoever counts spans needs no package of the extra ``otlp``.
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

        self._encode = encode_spans
        self._transport = transport
        self._timeout = timeout
        self._hasty = hasty
        self._most_bytes = MOST_BYTES
        self._ended = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; it is a success if all of it arrived. Never raises."""
        return SpanExportResult.FAILURE if self.deliver(spans).lost else SpanExportResult.SUCCESS

    def deliver(self, spans: Sequence[ReadableSpan]) -> Delivery:
        """Send a batch, in several requests where it is too large for one. Never raises."""
        if not spans:
            return Delivery()
        try:
            left = deque([self._encode(spans)])
        except Exception as error:  # spans of other libraries may hold anything
            why = f"the spans cannot be encoded: {type(error).__name__}: {error}"
            return Delivery(failed=len(spans), reason=why)
        found = Delivery()
        while left and not found.failed:
            request, *others = split_request(left.popleft(), self._most_bytes)
            left.extendleft(reversed(others))
            data = request.SerializeToString()
            size, count = len(data), number_of_spans(request)
            answer = self._send(data)
            if answer.kind != "too_large" or size <= LEAST_BYTES:
                found = found.then(_account_for(answer, count))
            elif count > 1:
                self._most_bytes = size // 2
                left.appendleft(request)
            else:
                found = found.then(_reject_large(answer, request, size))
        return found._replace(failed=found.failed + sum(map(number_of_spans, left)))

    def shutdown(self) -> None:
        """End retries under way, and close the connection."""
        self._ended.set()
        self._transport.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing, as nothing waits here; always true."""
        return True

    def _send(self, request: bytes) -> ExportAnswer:
        """Send until the receiver decides or the time is over; a failure says the first reason."""
        end = time.monotonic() + self._timeout
        reasons: list[str] = []
        for attempt in range(ATTEMPTS):
            answer = self._post(request, max(end - time.monotonic(), 0.01))
            if answer.kind == "taken":
                self._hasty = False
                return answer
            reasons.append(answer.says)
            if answer.kind in ("never", "too_large"):
                break
            if answer.kind == "unreached" and self._hasty:
                break
            wait = 2**attempt * random.uniform(0.8, 1.2) if answer.wait is None else answer.wait  # noqa: S311
            if wait > end - time.monotonic() or self._ended.wait(wait):
                break
        more = "" if reasons[-1] == reasons[0] else f"; at last: {reasons[-1]}"
        return answer._replace(says=reasons[0] + more)

    def _post(self, request: bytes, seconds: float) -> ExportAnswer:
        try:
            return self._transport.post(request, seconds)
        except Exception as error:  # a host's credential provider may do anything
            return ExportAnswer("never", f"{type(error).__name__}: {error}")


def _account_for(answer: ExportAnswer, count: int) -> Delivery:
    if answer.kind != "taken":
        return Delivery(failed=count, reason=answer.says)
    rejected = min(answer.rejected, count)
    silent = "it does not say why" if rejected else ""
    return Delivery(count - rejected, rejected, 0, answer.says or silent)


def _reject_large(answer: ExportAnswer, request: ExportTraceServiceRequest, size: int) -> Delivery:
    span = request.resource_spans[0].scope_spans[0].spans[0]
    why = f"the span {span.name!r} of {size:,} bytes is too large for it ({answer.says})"
    return Delivery(rejected=1, reason=why)


# -- requests ------------------------------------------------------------------------------------

_FRAME: Final = 6
"""Most bytes of the tag and the length before a message inside another one."""


def number_of_spans(request: ExportTraceServiceRequest) -> int:
    """The number of spans in a request."""
    return sum(len(scope.spans) for of in request.resource_spans for scope in of.scope_spans)


def split_request(request: ExportTraceServiceRequest, most: int) -> list[ExportTraceServiceRequest]:
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
            group: list[EncodedSpan] = []
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
    resource: ResourceSpans, scope: ScopeSpans, spans: Iterable[EncodedSpan]
) -> ExportTraceServiceRequest:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    of = request.resource_spans.add(schema_url=resource.schema_url)
    of.resource.CopyFrom(resource.resource)
    within = of.scope_spans.add(schema_url=scope.schema_url)
    within.scope.CopyFrom(scope.scope)
    within.spans.extend(spans)
    return request


# -- answers -------------------------------------------------------------------------------------


def decode(body: bytes) -> ExportAnswer:
    """The answer in the protobuf bytes of an ``ExportTraceServiceResponse``."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except DecodeError:
        return ExportAnswer(
            "never", f"its answer of {len(body):,} bytes is no OTLP answer, or a part of one"
        )
    return ExportAnswer("taken", excerpt(partial.error_message), max(partial.rejected_spans, 0))


class _Partial(msgspec.Struct, rename="camel"):
    # JSON's mapping of protobuf writes 64-bit integers as texts.
    rejected_spans: int | str = 0
    error_message: str = ""


class _Response(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    partial_success: _Partial | None = None


def decode_json(body: bytes) -> ExportAnswer:
    """The same in JSON, which some receivers answer to protobuf, too."""
    try:
        partial = msgspec.json.decode(body, type=_Response).partial_success or _Partial()
        return ExportAnswer(
            "taken", excerpt(partial.error_message), max(int(partial.rejected_spans), 0)
        )
    except ValueError:
        text = excerpt(body.decode(errors="replace"))
        return ExportAnswer("never", f"its answer is JSON, but no OTLP answer: {text}")


def excerpt(text: str) -> str:
    """The beginning of what a receiver says, on one line."""
    line = escape_breaks(" ".join(text.split()))
    return clip(line, EXCERPT + 1)
