"""What a receiver of OTLP makes of spans: of a request and of a batch, by both protocols.

The status of an answer is not enough. A web interface answers any request with 200 and a page, and
a collector that takes a batch may reject spans of it (OTLP's partial success).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.text import escape_breaks

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

EXCERPT: Final = 300
"""Most characters of a receiver's own words in a message of ours."""

Kind = Literal["taken", "again", "never", "too_large", "unreached"]
"""``unreached``: there was no connection, so the receiver knows nothing of the request."""


class ExportAnswer(NamedTuple):
    """What one attempt came to.

    ``says`` is why it failed; of a request that was taken, what the receiver remarks. ``rejected``:
    spans of a request that was taken. ``wait``: seconds after which the receiver wants to be asked
    again, where it says so.
    """

    kind: Kind
    says: str = ""
    rejected: int = 0
    wait: float | None = None


class Delivery(NamedTuple):
    """What became of a batch. Every span of it is counted once.

    ``rejected``: spans that the receiver will not take however often they are sent, while it takes
    others. ``failed``: spans that were sent in vain, and those behind them, which were not sent.
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


def decoded(body: bytes) -> ExportAnswer:
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


def decoded_json(body: bytes) -> ExportAnswer:
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
    return line if len(line) <= EXCERPT else line[:EXCERPT] + "…"


class ExporterEnvironment(NamedTuple):
    """What OpenTelemetry's environment variables say of exporters of traces.

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
        parse_env_headers(_of_traces("HEADERS") or "", liberal=True),
        _file("CERTIFICATE"),
        _file("CLIENT_CERTIFICATE"),
        _file("CLIENT_KEY"),
        (_of_traces("COMPRESSION") or "none").strip().lower(),
        _provided(f"OTEL_PYTHON_EXPORTER_OTLP_{protocol}"),
    )


def _of_traces(name: str) -> str | None:
    found = os.environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}")
    return found or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}") or None


def _file(name: str) -> str | None:
    path = _of_traces(name)
    if path is not None:
        try:
            Path(path).open("rb").close()
        except OSError as error:
            raise InvalidSetting(
                f"OTEL_EXPORTER_OTLP_{name}: expected a file that can be read, found {path!r}: "
                f"{error.strerror}"
            ) from error
    return path


def _provided(prefix: str) -> Any:
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
