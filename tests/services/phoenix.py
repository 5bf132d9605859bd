"""A real Phoenix (arize-phoenix) for the tests that request it: opt-in, 850 MB.

``python -m venv FOLDER`` and ``FOLDER/bin/pip install arize-phoenix==20.26.1`` install it, apart
because its 158 packages pin what ours do not; ``$EVENTCTX_PHOENIX`` is the path of that Python.

Its OTLP over gRPC listens on every interface, whatever its settings; the rest on 127.0.0.1 only."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import ProxyHandler, build_opener

from tests.services import process

VARIABLE = "EVENTCTX_PHOENIX"
OPT_IN = f"Phoenix is opt-in (850 MB): ${VARIABLE} is the Python that has it"

# "Phoenix is up and running" comes before it has the port of its HTTP; this line comes after.
_READY = b"Uvicorn running on"
_TAKEN = (b"address already in use", b"Failed to bind to address")


class Ports(NamedTuple):
    """The two ports that Phoenix listens on: its API and OTLP over HTTP share one."""

    http: int
    otlp_grpc: int


class Phoenix(NamedTuple):
    """A running Phoenix."""

    python: Path
    ports: Ports
    log: Path
    pid: int

    @property
    def grpc(self) -> str:
        """The endpoint for OTLP over gRPC, as ``eventctx trace --otlp`` takes it."""
        return f"grpc://127.0.0.1:{self.ports.otlp_grpc}"

    @property
    def http(self) -> str:
        """The endpoint for OTLP over HTTP, with the path of the traces."""
        return f"{self.query}/v1/traces"

    @property
    def query(self) -> str:
        """The base address of its REST API."""
        return f"http://127.0.0.1:{self.ports.http}"


def free_ports() -> Ports:
    """Two ports on which nobody listens just now."""
    return Ports(*process.free_ports(len(Ports._fields)))


@contextmanager
def start(
    python: Path,
    *,
    seconds: float = 180.0,
    attempts: int = 3,
    choose: Callable[[], Ports] = free_ports,
) -> Iterator[Phoenix]:
    """Run Phoenix until the end of the block; it is ready when the block begins.

    ``seconds`` is the time for one attempt to become ready (20 s on two idle cores); another
    attempt, with other ports, is made only when a port was taken meanwhile. Its database lies in
    a temporary folder, which is gone afterwards.

    Raises:
        ServiceFailed: it did not become ready; with the tail of its log.
    """
    with tempfile.TemporaryDirectory(prefix="eventctx-phoenix-") as folder:

        def run() -> AbstractContextManager[Phoenix]:
            return _running(python, choose(), Path(folder), seconds)

        with process.on_free_ports("Phoenix", run, attempts) as phoenix:
            yield phoenix


@contextmanager
def _running(python: Path, ports: Ports, folder: Path, seconds: float) -> Iterator[Phoenix]:
    work, log = folder / f"work-{ports.http}", folder / f"phoenix-{ports.http}.log"
    work.mkdir(exist_ok=True)
    service = process.Service(
        name="Phoenix",
        command=[python, "-I", "-m", "phoenix.server.main", "serve"],
        ready=_READY,
        health=f"http://127.0.0.1:{ports.http}/readyz",
        healthy=lambda _: True,
        taken=_TAKEN,
        environ=settings(ports, work),
    )
    with process.running(service, work, log, seconds) as started:
        yield Phoenix(python, ports, started.log, started.pid)


def settings(ports: Ports, work: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment that Phoenix runs in: it calls nobody, and offers no more than it must.

    What the caller's environment says to Phoenix or to OpenTelemetry is left out.
    """
    inherited = {
        name: value
        for name, value in environ.items()
        if not name.startswith(("PHOENIX_", "OTEL_", "OPENINFERENCE_"))
    }
    return inherited | {
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(ports.http),
        "PHOENIX_GRPC_PORT": str(ports.otlp_grpc),
        "PHOENIX_WORKING_DIR": str(work),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",  # it would offer a shell on this machine
        "PHOENIX_ENABLE_MCP_SERVER": "false",
    }


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PAGE = 1_000


class SeenEvent(NamedTuple):
    """A span event as Phoenix answers it; ``time_us`` since 1970."""

    time_us: int
    name: str
    attributes: dict[str, Any]


class SeenSpan(NamedTuple):
    """A span as Phoenix answers it; times in microseconds since 1970, ids in lowercase hex.

    ``kind`` is OpenInference's (``LLM``, ``TOOL``, ``AGENT``, ``UNKNOWN``, ...), ``status``
    ``UNSET``, ``OK`` or ``ERROR``; ``attributes`` are ours and those that Phoenix adds.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    start_us: int
    end_us: int
    status: str
    message: str
    attributes: dict[str, Any]
    events: tuple[SeenEvent, ...]


class Tokens(NamedTuple):
    """The tokens that Phoenix counts for a trace or a session."""

    prompt: int
    completion: int
    total: int


class SeenSession(NamedTuple):
    """A session as Phoenix groups it; ``traces`` are their ids, by start."""

    session: str
    traces: tuple[str, ...]
    tokens: Tokens


class PhoenixQuery:
    """The REST API at ``base`` (``http://127.0.0.1:6006``), each call within ``seconds``.

    Errors are urllib's; that a project or session is not there is no error.
    """

    def __init__(self, base: str, seconds: float = 60.0) -> None:
        self._base = base
        self._seconds = seconds
        self._open = build_opener(ProxyHandler({})).open

    def spans(self, project: str) -> tuple[SeenSpan, ...]:
        """All spans of a project, by start and id; none if there is no such project."""
        raw = self._pages(f"/v1/projects/{quote(project, safe='')}/spans")
        return tuple(sorted(map(_span, raw), key=lambda one: (one.start_us, one.span_id)))

    def tokens(self, project: str) -> dict[str, Tokens]:
        """The tokens of each trace of a project, by trace id."""
        raw = self._pages(f"/v1/projects/{quote(project, safe='')}/traces")
        return {one["trace_id"]: _tokens(one) for one in raw}

    def session(self, name: str) -> SeenSession | None:
        """A session by its name, or None if Phoenix has none of that name."""
        answer = self._get(f"/v1/sessions/{quote(name, safe='')}")
        if answer is None:
            return None
        found = answer["data"]
        traces = sorted(found["traces"], key=lambda one: str(one["start_time"]))
        return SeenSession(
            found["session_id"], tuple(one["trace_id"] for one in traces), _tokens(found)
        )

    def _pages(self, path: str) -> Iterator[dict[str, Any]]:
        query: dict[str, Any] = {"limit": _PAGE}
        while answer := self._get(f"{path}?{urlencode(query)}"):
            yield from answer["data"]
            if not (cursor := answer["next_cursor"]):
                return
            query["cursor"] = cursor

    def _get(self, path: str) -> Any:
        try:
            with self._open(self._base + path, timeout=self._seconds) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                if error.code == 404:
                    return None
            raise


def _span(raw: dict[str, Any]) -> SeenSpan:
    events = [
        SeenEvent(_us(one["timestamp"]), one["name"], dict(one["attributes"]))
        for one in raw["events"]
    ]
    return SeenSpan(
        trace_id=raw["context"]["trace_id"],
        span_id=raw["context"]["span_id"],
        parent_span_id=raw["parent_id"],
        name=raw["name"],
        kind=raw["span_kind"],
        start_us=_us(raw["start_time"]),
        end_us=_us(raw["end_time"]),
        status=raw["status_code"],
        message=raw["status_message"],
        attributes=dict(raw["attributes"]),
        events=tuple(events),
    )


def _tokens(raw: dict[str, Any]) -> Tokens:
    return Tokens(
        raw["token_count_prompt"], raw["token_count_completion"], raw["token_count_total"]
    )


def _us(time: str) -> int:
    return (datetime.fromisoformat(time) - _EPOCH) // timedelta(microseconds=1)
