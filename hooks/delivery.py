"""Delivers spans to a receiver of OTLP: in requests that it takes, with retries, and accounted for.

OpenTelemetry's own exporters tell success from failure by the status of an answer, say why only in
log lines, and send a batch as one request however large it is. So only their encoder is used here,
and the answers are read (docs/decisions/0055-answers-of-otlp-are-read.md).
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from eventctx.hooks.otlp_answers import Delivery, ExportAnswer, Transport
from eventctx.hooks.otlp_requests import in_parts, number_of_spans

MOST_BYTES: Final = 4 * 1024 * 1024 - 4096
"""Most bytes of an encoded request: by default, servers of gRPC refuse more than 4 MiB."""

LEAST_BYTES: Final = 64 * 1024
"""A receiver to which less than this is too much takes nothing; no request is divided further."""

ATTEMPTS: Final = 6
"""Most times that a request is sent: a receiver may want to be asked again without a pause."""


class DeliveringExporter(SpanExporter):
    """An exporter of OTLP that reads the answers. Closes its transport at ``shutdown``.

    ``timeout``: seconds for one request, retries included. ``hasty``: if there is no connection to
    be had before a first request was taken, give up at once.
    """

    def __init__(self, transport: Transport, *, timeout: float, hasty: bool = False) -> None:
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
            left = deque([encode_spans(spans)])
        except Exception as error:  # spans of other libraries may hold anything
            why = f"the spans cannot be encoded: {type(error).__name__}: {error}"
            return Delivery(failed=len(spans), reason=why)
        found = Delivery()
        while left and not found.failed:
            request, *others = in_parts(left.popleft(), self._most_bytes)
            left.extendleft(reversed(others))
            data = request.SerializeToString()
            size, count = len(data), number_of_spans(request)
            answer = self._send(data)
            if answer.kind != "too_large" or size <= LEAST_BYTES:
                found = found.then(_outcome(answer, count))
            elif count > 1:
                self._most_bytes = size // 2
                left.appendleft(request)
            else:
                found = found.then(_too_large(answer, request, size))
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


def _outcome(answer: ExportAnswer, count: int) -> Delivery:
    if answer.kind != "taken":
        return Delivery(failed=count, reason=answer.says)
    rejected = min(answer.rejected, count)
    silent = "it does not say why" if rejected else ""
    return Delivery(count - rejected, rejected, 0, answer.says or silent)


def _too_large(answer: ExportAnswer, request: ExportTraceServiceRequest, size: int) -> Delivery:
    span = request.resource_spans[0].scope_spans[0].spans[0]
    why = f"the span {span.name!r} of {size:,} bytes is too large for it ({answer.says})"
    return Delivery(rejected=1, reason=why)
