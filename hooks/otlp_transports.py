"""The connections to a receiver of OTLP, by HTTP and by gRPC: they read the whole answer.

Both give one ``ExportAnswer``. OpenTelemetry's exporters drop the response, and with it the number
of rejected spans. The service of gRPC is called with bytes, so that a request is encoded once for
both protocols. Headers, certificates and credentials are those of OpenTelemetry's environment
variables.
"""

from __future__ import annotations

import gzip
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http.client import BadStatusLine
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import requests
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from eventctx.errors import InvalidSetting
from eventctx.hooks.delivery import ExportAnswer, decode, decode_json, excerpt
from eventctx.version import __version__

# -- the environment -----------------------------------------------------------------------------


class ExporterEnvironment(NamedTuple):
    """The settings for exporters of traces in OpenTelemetry's environment variables.

    ``certificate``, ``client_certificate`` and ``client_key`` are paths. ``provider`` is what the
    credential provider of that name returned.
    """

    headers: Mapping[str, str]
    certificate: str | None
    client_certificate: str | None
    client_key: str | None
    compression: str
    provider: Any


def environment(protocol: Literal["HTTP", "GRPC"]) -> ExporterEnvironment:
    """The settings for one protocol.

    Raises InvalidSetting for a file that cannot be read, and a provider that is not installed.
    """
    from opentelemetry.util.re import parse_env_headers

    return ExporterEnvironment(
        parse_env_headers(_variable("HEADERS") or "", liberal=True),
        _file("CERTIFICATE"),
        _file("CLIENT_CERTIFICATE"),
        _file("CLIENT_KEY"),
        (_variable("COMPRESSION") or "none").strip().lower(),
        _load_provider(f"OTEL_PYTHON_EXPORTER_OTLP_{protocol}"),
    )


def _variable(name: str) -> str | None:
    found = os.environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}")
    return found or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}") or None


def _file(name: str) -> str | None:
    path = _variable(name)
    if path is not None:
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise InvalidSetting(
                f"OTEL_EXPORTER_OTLP_{name}: expected a file that can be read, found {path!r}: "
                f"{error.strerror}"
            ) from error
    return path


def _load_provider(prefix: str) -> Any:
    name = os.environ.get(f"{prefix}_TRACES_CREDENTIAL_PROVIDER") or os.environ.get(
        f"{prefix}_CREDENTIAL_PROVIDER"
    )
    if not name:
        return None
    for found in entry_points(group="opentelemetry_otlp_credential_provider", name=name):
        return found.load()()
    raise InvalidSetting(
        f"{prefix}_CREDENTIAL_PROVIDER: expected the name of an installed credential provider "
        f"(entry point opentelemetry_otlp_credential_provider), found {name!r}"
    )


# -- HTTP ----------------------------------------------------------------------------------------

_SENT: Final = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "gzip",
    "User-Agent": f"eventctx/{__version__}",
}
_PROTOBUF: Final = ("application/x-protobuf", "application/protobuf")
_UNTYPED: Final = ("", "application/octet-stream")
_HTML: Final = ("text/html", "application/xhtml+xml")
_TITLE: Final = re.compile(r"<title[^>]{0,200}>([^<]{1,200})<", re.IGNORECASE)
_AGAIN: Final = (429, 502, 503, 504)
"""The statuses after which OTLP wants a request to be sent again."""
_TOO_LARGE: Final = 413
_GRPC: Final = "if that is a port of gRPC, write grpc:// for http://"
_NOT_CONNECTED: Final = ("NewConnectionError", "NameResolutionError")
"""The classes of urllib3, of which requests may bring its own copy."""


class Http:
    """A connection to one URL. Follows no redirect: OTLP has none, and a login page is one."""

    def __init__(self, url: str) -> None:
        found = environment("HTTP")
        self._url = url
        self._session = found.provider or requests.Session()
        self._headers = {**_SENT, **found.headers}
        self._verify = found.certificate or True
        self._cert = (
            (found.client_certificate, found.client_key)
            if found.client_certificate and found.client_key
            else found.client_certificate
        )

    def post(self, request: bytes, seconds: float) -> ExportAnswer:
        """Send a request, and wait for its answer."""
        try:
            response = self._session.post(
                self._url,
                data=gzip.compress(request, 6),
                headers=self._headers,
                timeout=seconds,
                allow_redirects=False,
                verify=self._verify,
                cert=self._cert,
            )
        except (requests.exceptions.RequestException, OSError) as error:
            return _http_failure(error, seconds)
        return _read(response)

    def close(self) -> None:
        """Release the connection."""
        self._session.close()


def _http_failure(error: Exception, seconds: float) -> ExportAnswer:
    match error:
        case requests.exceptions.SSLError():
            return ExportAnswer("never", f"no secure connection: {_innermost_words(error)}")
        case requests.exceptions.ConnectTimeout():
            return ExportAnswer("unreached", f"it could not be reached within {seconds:.1f} s")
        case requests.exceptions.Timeout():
            return ExportAnswer("again", f"it did not answer within {seconds:.1f} s")
        case requests.exceptions.ProxyError():
            return ExportAnswer("again", f"the proxy failed: {_innermost_words(error)}")
        case requests.exceptions.ConnectionError():
            return _broken_connection(error)
        case requests.exceptions.ChunkedEncodingError():
            return ExportAnswer("again", "its answer broke off")
    return ExportAnswer("never", f"{type(error).__name__}: {excerpt(str(error))}")


def _broken_connection(error: Exception) -> ExportAnswer:
    causes = _causes(error)
    if any(isinstance(one, ConnectionRefusedError) for one in causes):
        return ExportAnswer("unreached", "connection refused, nobody listens there")
    if any(type(one).__name__ in _NOT_CONNECTED for one in causes):
        return ExportAnswer("unreached", _innermost_words(error))
    # A connection that was closed is one of a derived class.
    if any(type(one) is BadStatusLine for one in causes):
        return ExportAnswer("never", f"it does not speak HTTP; {_GRPC}")
    why = f"it closed the connection without an answer of HTTP ({_innermost_words(error)})"
    return ExportAnswer("again", f"{why}; {_GRPC}")


def _causes(error: BaseException) -> list[BaseException]:
    """The error and its causes, the innermost last."""
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found


def _innermost_words(error: BaseException) -> str:
    last = _causes(error)[-1]
    return excerpt(str(last) or type(last).__name__)


def _read(response: requests.Response) -> ExportAnswer:
    status = response.status_code
    told = f"{status} {response.reason}".rstrip()
    if status < 300:
        return _success(response, told)
    if status < 400:
        place = excerpt(response.headers.get("Location", "nowhere"))
        return ExportAnswer("never", f"it answers {told} and sends to {place}: no OTLP answer")
    words = "" if _kind(response) in _HTML else _words(response)
    says = f"{told}: {words}" if words else told
    if status == _TOO_LARGE:
        return ExportAnswer("too_large", says)
    if status in _AGAIN:
        wait = _retry_after(response.headers.get("Retry-After"))
        later = "" if wait is None else f", to be asked again after {wait:.0f} s"
        return ExportAnswer("again", says + later, wait=wait)
    return ExportAnswer("never", says)


def _success(response: requests.Response, told: str) -> ExportAnswer:
    kind, body = _kind(response), response.content
    if kind in _PROTOBUF or kind in _UNTYPED:
        return decode(body)
    if kind == "application/json":
        return decode_json(body)
    if not body and kind not in _HTML:
        return ExportAnswer("taken")
    words = _words(response)
    shown = f" ({words})" if words else ""
    return ExportAnswer("never", f"it answers {told} with {kind}{shown}, which is no OTLP answer")


def _kind(response: requests.Response) -> str:
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _words(response: requests.Response) -> str:
    """The words of a body: a status' message, a page's title, the beginning of a text."""
    kind, body = _kind(response), response.content
    if kind in _PROTOBUF:
        with suppress(DecodeError):
            return excerpt(Status.FromString(body).message)
        return ""
    text = body[:65_536].decode(errors="replace")
    if kind in _HTML:
        title = _TITLE.search(text)
        return f"a page with the title {excerpt(title[1])!r}" if title else "a page"
    return excerpt(text)


def _retry_after(value: str | None) -> float | None:
    """The header's seconds or date as seconds from now."""
    if value is None:
        return None
    with suppress(ValueError, TypeError, OverflowError):
        if value.strip().isdigit():
            return float(value)
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    return None


# -- gRPC ----------------------------------------------------------------------------------------

_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_OPTIONS: Final = (
    ("grpc.primary_user_agent", f"eventctx/{__version__}"),
    # A failed connection is tried anew as soon as we ask again; by default gRPC waits for up to
    # two minutes, in which every call fails with the old error.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_AGAIN_CODES: Final = (
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNAVAILABLE",
    "DATA_LOSS",
)
"""The codes after which OTLP wants a request to be sent again; RESOURCE_EXHAUSTED needs a time."""
_TOO_LARGE_DETAILS: Final = re.compile(r"larger than max|exceeds? max|too large", re.IGNORECASE)
_UNREACHED: Final = re.compile(r"failed to connect|resolving|resolution", re.IGNORECASE)
_ALL_ADDRESSES: Final = re.compile(r"failed to connect to all addresses; last error: \w+: ")
_NO_GRPC: Final = re.compile(r"parsing HTTP/2|http1\.x", re.IGNORECASE)
_REFUSED: Final = re.compile(r"connection refused", re.IGNORECASE)


class Grpc:
    """A channel to one target, ``HOST:PORT``."""

    def __init__(self, target: str, *, insecure: bool) -> None:
        import grpc  # loads slowly, and HTTP does without

        found = environment("GRPC")
        self._metadata = tuple(found.headers.items())
        self._failure: type[Exception] = grpc.RpcError
        compressed = found.compression == "gzip"
        compression = grpc.Compression.Gzip if compressed else grpc.Compression.NoCompression
        if insecure:
            self._channel: Any = grpc.insecure_channel(target, _OPTIONS, compression)
        else:
            credentials = found.provider or grpc.ssl_channel_credentials(
                _file_bytes(found.certificate),
                _file_bytes(found.client_key),
                _file_bytes(found.client_certificate),
            )
            self._channel = grpc.secure_channel(target, credentials, _OPTIONS, compression)
        self._export = self._channel.unary_unary(_EXPORT)

    def post(self, request: bytes, seconds: float) -> ExportAnswer:
        """Call the service, and wait for its answer."""
        try:
            return decode(self._export(request, timeout=seconds, metadata=self._metadata))
        except self._failure as error:
            return _grpc_failure(error, seconds)
        except ValueError as error:  # the channel was closed
            return ExportAnswer("never", excerpt(str(error)))

    def close(self) -> None:
        """Close the channel; a call under way fails."""
        self._channel.close()


def _file_bytes(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


def _grpc_failure(error: Any, seconds: float) -> ExportAnswer:
    code, details = error.code().name, error.details() or ""
    says = excerpt(f"{code}: {_ALL_ADDRESSES.sub('', details)}" if details else code)
    if code in ("RESOURCE_EXHAUSTED", "OUT_OF_RANGE") and _TOO_LARGE_DETAILS.search(details):
        return ExportAnswer("too_large", says)
    if code == "UNAVAILABLE" and _REFUSED.search(details):
        return ExportAnswer("unreached", "connection refused, nobody listens there")
    if code == "UNAVAILABLE" and _NO_GRPC.search(details):
        return ExportAnswer("never", "no gRPC is spoken there; for OTLP by HTTP, write http://")
    if code == "UNAVAILABLE" and _UNREACHED.search(details):
        return ExportAnswer("unreached", says)
    if code == "DEADLINE_EXCEEDED":
        return ExportAnswer("again", f"it did not answer within {seconds:.1f} s")
    wait = _retry_info(error)
    if code in _AGAIN_CODES or (code == "RESOURCE_EXHAUSTED" and wait is not None):
        later = "" if wait is None else f", to be asked again after {wait:.0f} s"
        return ExportAnswer("again", says + later, wait=wait)
    return ExportAnswer("never", says)


def _retry_info(error: Any) -> float | None:
    """The seconds of the error's RetryInfo."""
    for key, value in error.trailing_metadata() or ():
        if key == "google.rpc.retryinfo-bin":
            delay = RetryInfo.FromString(value).retry_delay
            return float(delay.seconds + delay.nanos / 1e9)
    return None
