"""Sends spans from the log to a collector or Jaeger, with OpenTelemetry's own OTLP exporters.

It does not use the tracer: a finished span becomes the SDK's ``ReadableSpan`` unchanged, with the
ids and times of the log, and goes to the exporter in batches, each of which waits for its answer.
So no sampler drops it, no queue overflows, and sending again sends the same. The exporters are the
``otlp`` extra.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from eventctx.errors import ExportFailed, InvalidSetting
from eventctx.hooks.readable import readable
from eventctx.log.arguments import is_text, shown
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attribute
from eventctx.projections.trace.spans import Span
from eventctx.safe_text import without_password

GRPC_PORT: Final = 4317
"""The registered port of OTLP over gRPC; 4318 is that of OTLP over HTTP."""

_SCHEMES: Final = ("http", "https", "grpc", "grpcs")
_HOST: Final = re.compile(r"[^%]{1,253}")
_NOT_IN_URLS: Final = re.compile(r"[\s\x00-\x1f\x7f]")
_TRACES: Final = "/v1/traces"
_ONE_CLOCK: Final = {conv.HOST_ID: conv.SCOPE, "ip": "127.0.0.1"}
"""A made-up host, under the names that Jaeger's query service reads: the present and the first."""


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
    # All times are those of one log. Jaeger suspects different clocks if it does not know a span's
    # host, and warns of (or moves) every tool call, which begins after its parent model call ended.
    return Resource({**_ONE_CLOCK, **found})


class Sender:
    """Sends spans to a collector's URL; ``send`` returns when the batch was accepted.

    ``timeout``: seconds for one batch, retries included. Raises InvalidSetting as ``exporter_for``.
    """

    def __init__(self, url: str, *, timeout: float = 10.0) -> None:
        self._exporter = exporter_for(url, timeout=timeout)
        self.shown = without_password(url)
        """The URL as messages show it."""
        self._resource = sending_resource()
        self.service = str(self._resource.attributes.get(conv.SERVICE_NAME))

    def send(self, spans: Sequence[Span]) -> None:
        """Send a batch and wait until it was accepted. Raises ExportFailed."""
        batch = [readable(span, self._resource) for span in spans]
        with _captured_warnings() as warnings:
            try:
                result = self._exporter.export(batch)
            except Exception as error:
                reason = without_password(f"{type(error).__name__}: {error}")
                raise ExportFailed(self.shown, reason) from error
        if result is not SpanExportResult.SUCCESS:
            reason = without_password(warnings[-1]) if warnings else "it did not say why"
            raise ExportFailed(self.shown, reason)

    def close(self) -> None:
        """Release the connection."""
        self._exporter.shutdown()


def exporter_for(url: str, *, timeout: float = 10.0) -> SpanExporter:
    """OpenTelemetry's exporter for a collector's URL.

    ``grpc://HOST:PORT`` and any URL with port 4317 is gRPC, ``http(s)://`` is HTTP with protobuf,
    to ``/v1/traces`` if the URL has no path. ``timeout``: seconds for one batch, retries included.
    Headers and certificates come from the exporters' environment variables (OTEL_EXPORTER_OTLP_*).
    Raises InvalidSetting for an invalid URL, and if the ``otlp`` extra is not installed.
    """
    parts = _split(url)
    if parts is None:
        raise InvalidSetting(
            "OTLP: expected http://HOST:4318, grpc://HOST:4317 or the like, found "
            f"{shown(without_password(url) if isinstance(url, str) else url)}"
        )
    port = parts.port
    if parts.scheme.startswith("grpc") or port == GRPC_PORT:
        # gRPC has no users in its targets, and would name the password when it cannot connect.
        return _grpc(parts.netloc.rpartition("@")[2], parts.scheme in ("http", "grpc"), timeout)
    path = _TRACES if parts.path in ("", "/") else parts.path
    return _http(urlunsplit(parts._replace(path=path)), timeout)


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


def _grpc(target: str, insecure: bool, timeout: float) -> SpanExporter:
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise _missing(error) from error
    return OTLPSpanExporter(endpoint=target, insecure=insecure, timeout=timeout)


def _http(url: str, timeout: float) -> SpanExporter:
    try:
        from opentelemetry.exporter.otlp.proto.http import Compression
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise _missing(error) from error
    return OTLPSpanExporter(endpoint=url, timeout=timeout, compression=Compression.Gzip)


def _missing(error: ImportError) -> InvalidSetting:
    return InvalidSetting(
        f"sending by OTLP needs OpenTelemetry's exporters, which are not installed ({error}); "
        "install them with: pip install 'eventctx[otlp]'"
    )


@contextmanager
def _captured_warnings() -> Iterator[list[str]]:
    """The exporters' log messages inside the block; only these give the cause of a failed batch."""
    warnings: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings.append(record.getMessage())

    logger, handler = logging.getLogger("opentelemetry.exporter"), Listening(logging.WARNING)
    passes, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield warnings
    finally:
        logger.removeHandler(handler)
        logger.propagate = passes
