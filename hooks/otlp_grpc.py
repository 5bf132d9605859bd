"""Calls OTLP's trace service by gRPC, and reads the whole answer: code, details and response.

OpenTelemetry's exporter drops the response, and with it the number of rejected spans. The service
is called with bytes, so that a request is encoded once for both protocols.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import grpc
from google.rpc.error_details_pb2 import RetryInfo

from eventctx.hooks.otlp_answers import (
    ExportAnswer,
    ExporterEnvironment,
    decoded,
    environment,
    excerpt,
)
from eventctx.version import __version__

_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_OPTIONS: Final = (
    ("grpc.primary_user_agent", f"eventctx/{__version__}"),
    # A failed connection is tried anew as soon as we ask again; by default gRPC waits for up to
    # two minutes, in which every call fails with the old error.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_AGAIN: Final = (
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNAVAILABLE",
    "DATA_LOSS",
)
"""The codes after which OTLP wants a request to be sent again; RESOURCE_EXHAUSTED needs a time."""
_TOO_LARGE: Final = re.compile(r"larger than max|exceeds? max|too large", re.IGNORECASE)
_UNREACHED: Final = re.compile(r"failed to connect|resolving|resolution", re.IGNORECASE)
_ALL_ADDRESSES: Final = re.compile(r"failed to connect to all addresses; last error: \w+: ")
_NO_GRPC: Final = re.compile(r"parsing HTTP/2|http1\.x", re.IGNORECASE)
_REFUSED: Final = re.compile(r"connection refused", re.IGNORECASE)


class Grpc:
    """A channel to one target, ``HOST:PORT``."""

    def __init__(self, target: str, *, insecure: bool) -> None:
        found = environment("GRPC")
        gzip = found.compression == "gzip"
        self._metadata = tuple(found.headers.items())
        self._channel = _channel(
            target,
            insecure,
            found,
            grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression,
        )
        self._export = self._channel.unary_unary(_EXPORT)

    def post(self, request: bytes, seconds: float) -> ExportAnswer:
        """Call the service, and wait for its answer."""
        try:
            return decoded(self._export(request, timeout=seconds, metadata=self._metadata))
        except grpc.RpcError as error:
            return _failed(error, seconds)
        except ValueError as error:  # the channel was closed
            return ExportAnswer("never", excerpt(str(error)))

    def close(self) -> None:
        """Close the channel; a call under way fails."""
        self._channel.close()


def _channel(target: str, insecure: bool, found: ExporterEnvironment, compression: Any) -> Any:
    if insecure:
        return grpc.insecure_channel(target, _OPTIONS, compression)
    credentials = found.provider or grpc.ssl_channel_credentials(
        _read(found.certificate), _read(found.client_key), _read(found.client_certificate)
    )
    return grpc.secure_channel(target, credentials, _OPTIONS, compression)


def _read(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


def _failed(error: Any, seconds: float) -> ExportAnswer:
    code, details = error.code().name, error.details() or ""
    says = excerpt(f"{code}: {_ALL_ADDRESSES.sub('', details)}" if details else code)
    if code in ("RESOURCE_EXHAUSTED", "OUT_OF_RANGE") and _TOO_LARGE.search(details):
        return ExportAnswer("too_large", says)
    if code == "UNAVAILABLE" and _REFUSED.search(details):
        return ExportAnswer("unreached", "connection refused, nobody listens there")
    if code == "UNAVAILABLE" and _NO_GRPC.search(details):
        return ExportAnswer("never", "no gRPC is spoken there; for OTLP by HTTP, write http://")
    if code == "UNAVAILABLE" and _UNREACHED.search(details):
        return ExportAnswer("unreached", says)
    if code == "DEADLINE_EXCEEDED":
        return ExportAnswer("again", f"it did not answer within {seconds:.1f} s")
    wait = _retry_after(error)
    if code in _AGAIN or (code == "RESOURCE_EXHAUSTED" and wait is not None):
        later = "" if wait is None else f", to be asked again after {wait:.0f} s"
        return ExportAnswer("again", says + later, wait=wait)
    return ExportAnswer("never", says)


def _retry_after(error: Any) -> float | None:
    """The seconds of the error's RetryInfo."""
    for key, value in error.trailing_metadata() or ():
        if key == "google.rpc.retryinfo-bin":
            delay = RetryInfo.FromString(value).retry_delay
            return float(delay.seconds + delay.nanos / 1e9)
    return None
