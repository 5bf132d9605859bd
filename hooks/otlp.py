"""Sends spans from the log to a collector or Jaeger by OTLP.

It does not use the tracer: a finished span becomes the SDK's ``ReadableSpan`` unchanged, with the
ids and times of the log, and is sent in batches, each of which waits for its answer. So no sampler
drops it, no queue overflows, and sending again sends the same. It needs the ``otlp`` extra.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from eventctx.errors import ExportFailed, InvalidSetting
from eventctx.log.arguments import is_text, shown
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attribute
from eventctx.projections.trace.spans import Span, SpanLink
from eventctx.text import without_password
from eventctx.version import __version__

if TYPE_CHECKING:
    from eventctx.hooks.delivery import DeliveringExporter, Transport


GRPC_PORT: Final = 4317
"""The registered port of OTLP over gRPC; 4318 is that of OTLP over HTTP."""

_SCHEMES: Final = ("http", "https", "grpc", "grpcs")
_HOST: Final = re.compile(r"[^%]{1,253}")
_NOT_IN_URLS: Final = re.compile(r"[\s\x00-\x1f\x7f]")
_TRACES: Final = "/v1/traces"


def resource_attributes() -> dict[str, Attribute]:
    """The attributes of ``sending_resource`` that are texts, for files."""
    found = sending_resource().attributes
    return {name: value for name, value in found.items() if type(value) is str}


def sending_resource(service: str | None = None) -> Resource:
    """The resource of the spans: the SDK's, without the attributes that identify this process.

    The service is ``service``, else that of OpenTelemetry's environment variables, else eventctx.
    """
    # A backend recognises copies of a span by comparing all of it. With attributes of this process
    # and its packages, it would show a span that two processes or versions send twice.
    found: dict[str, Any] = {
        name: value
        for name, value in Resource.create().attributes.items()
        if not name.startswith(("telemetry.", "service.instance."))
    }
    if str(found.get(conv.SERVICE_NAME, "")).startswith("unknown_service"):
        found[conv.SERVICE_NAME] = conv.SCOPE
    if service is not None:
        found[conv.SERVICE_NAME] = service
    return Resource(found)


class Sender:
    """Sends spans to a collector's URL; ``send`` returns when it has answered.

    ``timeout``: seconds for one request, retries included. A collector that cannot be reached at
    the beginning is not waited for. Raises InvalidSetting as ``exporter_for``.
    """

    def __init__(self, url: str, *, timeout: float = 10.0) -> None:
        self._exporter = exporter_for(url, timeout=timeout, hasty=True)
        self.shown = without_password(url)
        """The URL as messages show it."""
        self._resource = sending_resource()
        self.service = str(self._resource.attributes.get(conv.SERVICE_NAME))
        self.arrived = 0
        """Spans that the collector took."""
        self._rejected, self._reason = 0, ""

    def send(self, spans: Sequence[Span]) -> str:
        """Send a batch, and wait for the answer; returns what the collector remarks, mostly "".

        Spans that the collector rejects do not keep the others from being sent; ``finish`` tells of
        them. Raises ExportFailed.
        """
        found = self._exporter.deliver([readable(span, self._resource) for span in spans])
        self.arrived += found.arrived
        if found.rejected and not self._rejected:
            self._reason = found.reason
        self._rejected += found.rejected
        reason = without_password(self._reason or found.reason)
        if found.failed:
            raise ExportFailed(self.shown, reason, self.arrived, self._rejected)
        return "" if found.rejected else without_password(found.reason)

    def finish(self) -> None:
        """Release the connection. Raises ExportFailed if spans were rejected."""
        self.close()
        if self._rejected:
            reason = without_password(self._reason)
            raise ExportFailed(self.shown, reason, self.arrived, self._rejected, others=True)

    def close(self) -> None:
        """Release the connection, and end a ``send`` that waits before a further attempt."""
        self._exporter.shutdown()


def exporter_for(url: str, *, timeout: float = 10.0, hasty: bool = False) -> DeliveringExporter:
    """An exporter for a collector's URL, which tells of every span whether it arrived.

    ``grpc://HOST:PORT`` and any URL with port 4317 is gRPC, ``http(s)://`` is HTTP with protobuf,
    to ``/v1/traces`` if the URL has no path. ``timeout``: seconds for one request, retries
    included; with ``hasty`` none if the collector cannot be reached at the beginning. Headers and
    certificates come from OpenTelemetry's environment variables (OTEL_EXPORTER_OTLP_*). Raises
    InvalidSetting for an invalid URL, for a certificate that cannot be read, and if the ``otlp``
    extra is not installed.
    """
    parts = _split(url)
    if parts is None:
        raise InvalidSetting(
            "OTLP: expected http://HOST:4318, grpc://HOST:4317 or the like, found "
            f"{shown(without_password(url) if isinstance(url, str) else url)}"
        )
    try:
        from eventctx.hooks.delivery import DeliveringExporter

        return DeliveringExporter(_transport(parts), timeout=timeout, hasty=hasty)
    except ImportError as error:
        raise InvalidSetting(
            f"sending by OTLP needs packages that are not installed ({error}); "
            "install them with: pip install 'eventctx[otlp]'"
        ) from error


def _transport(parts: SplitResult) -> Transport:
    from eventctx.hooks.otlp_transports import Grpc, Http

    if parts.scheme.startswith("grpc") or parts.port == GRPC_PORT:
        # gRPC has no users in its targets, and would name the password.
        target = parts.netloc.rpartition("@")[2]
        return Grpc(target, insecure=parts.scheme in ("http", "grpc"))
    path = _TRACES if parts.path in ("", "/") else parts.path
    return Http(urlunsplit(parts._replace(path=path)))


def _split(url: object) -> SplitResult | None:
    """The parts of a collector's URL; None for what is none."""
    # ``urlsplit`` drops tabs and line ends.
    if not isinstance(url, str) or not is_text(url) or _NOT_IN_URLS.search(url):
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # brackets that do not close, a port that is no number up to 65535
        return None
    sound = host is not None and _HOST.fullmatch(host) is not None and port != 0
    return parts if sound and parts.scheme in _SCHEMES else None


SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_SCOPE: Final = InstrumentationScope(conv.SCOPE, __version__, conv.SCHEMA_URL)
_KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
_UNSET: Final = Status()


def readable(
    span: Span,
    of: Resource,
    *,
    added: Mapping[str, Any] | None = None,
    state: TraceState | None = None,
) -> ReadableSpan:
    """The span as a sampled one, with ``added`` attributes; ``state`` is its trace's state."""
    trace_id = int(span.trace_id, 16)
    parent = None
    if span.parent_span_id is not None:
        parent = SpanContext(trace_id, int(span.parent_span_id, 16), False, SAMPLED, state)
    attributes: Mapping[str, Any] = {**added, **span.attributes} if added else span.attributes
    return ReadableSpan(
        span.name,
        SpanContext(trace_id, int(span.span_id, 16), False, SAMPLED, state),
        parent,
        of,
        attributes,
        [Event(event.name, event.attributes, event.time) for event in span.events],
        [_link(one) for one in span.links] if span.links else (),
        _KINDS[span.kind],
        None,
        Status(StatusCode.ERROR, span.message) if span.status == "error" else _UNSET,
        span.start,
        span.end,
        _SCOPE,
    )


def _link(link: SpanLink) -> Link:
    to = SpanContext(int(link.trace_id, 16), int(link.span_id, 16), False, SAMPLED)
    return Link(to, link.attributes)
