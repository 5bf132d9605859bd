"""A real Phoenix (arize-phoenix) for the tests that request it: opt-in, 850 MB.

``python -m venv FOLDER`` and ``FOLDER/bin/pip install arize-phoenix==20.26.1`` install it, apart
because its 158 packages pin what ours do not; ``$EVENTCTX_PHOENIX`` is the path of that Python.

Its OTLP over gRPC listens on every interface, whatever its settings; the rest on 127.0.0.1 only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, urlencode

from tests.services import process

VARIABLE = "EVENTCTX_PHOENIX"
OPT_IN = f"Phoenix is opt-in (850 MB): ${VARIABLE} is the Python that has it"


class Phoenix(NamedTuple):
    """A running Phoenix, and its ports: its API and OTLP over HTTP share one."""

    python: Path
    port: int
    otlp_grpc: int

    @property
    def grpc(self) -> str:
        """The endpoint for OTLP over gRPC, as ``eventctx trace --otlp`` takes it."""
        return f"grpc://127.0.0.1:{self.otlp_grpc}"

    @property
    def http(self) -> str:
        """The endpoint for OTLP over HTTP, with the path of the traces."""
        return f"{self.query}/v1/traces"

    @property
    def query(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def start(python: Path) -> Iterator[Phoenix]:
    """Run Phoenix until the end of the block; it is ready when the block begins.

    It calls nobody, and offers no more than it must; its database goes with the end. What the
    caller's environment says to Phoenix or to OpenTelemetry is left out.

    Raises PortTaken, ServiceFailed.
    """
    left_out = ("PHOENIX_", "OTEL_", "OPENINFERENCE_")
    inherited = {name: one for name, one in os.environ.items() if not name.startswith(left_out)}

    def service(folder: Path, ports: tuple[int, ...]) -> process.Service:
        settings = {
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(ports[0]),
            "PHOENIX_GRPC_PORT": str(ports[1]),
            "PHOENIX_WORKING_DIR": str(folder),
            "PHOENIX_TELEMETRY_ENABLED": "false",
            "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
            "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",  # it would offer a shell on this machine
            "PHOENIX_ENABLE_MCP_SERVER": "false",
        }
        return process.Service(
            name="Phoenix",
            command=[python, "-I", "-m", "phoenix.server.main", "serve"],
            # "Phoenix is up and running" comes before it has the port of its HTTP; this after
            ready=b"Uvicorn running on",
            health=f"http://127.0.0.1:{ports[0]}/readyz",
            healthy=b"",
            taken=(b"address already in use", b"Failed to bind to address"),
            environ=inherited | settings,
        )

    with process.running(service, 2, 180.0) as ports:  # 20 s on two idle cores
        yield Phoenix(python, *ports)


SeenSpan = SimpleNamespace
"""A span as Phoenix answers it; times in microseconds since 1970, ids in lowercase hex.

``kind`` is OpenInference's (``LLM``, ``TOOL``, ``AGENT``, ``UNKNOWN``, ...), ``status`` ``UNSET``,
``OK`` or ``ERROR``; ``attributes`` are ours and those that Phoenix adds.
"""


def _tokens(raw: dict[str, Any]) -> tuple[int, ...]:
    """Those that Phoenix counts for a trace or a session."""
    return tuple(raw[f"token_count_{name}"] for name in ("prompt", "completion", "total"))


class PhoenixQuery(NamedTuple):
    """The REST API at ``base`` (``http://127.0.0.1:6006``), each call within ``seconds``.

    Errors are urllib's; that a project or session is not there is no error.
    """

    base: str
    seconds: float = 60.0

    def spans(self, project: str) -> tuple[SeenSpan, ...]:
        """All spans of a project, by start and id; none if there is no such project."""
        raw = self._pages(f"/v1/projects/{quote(project, safe='')}/spans")
        return tuple(sorted(map(_span, raw), key=lambda one: (one.start_us, one.span_id)))

    def tokens(self, project: str) -> dict[str, tuple[int, ...]]:
        raw = self._pages(f"/v1/projects/{quote(project, safe='')}/traces")
        return {one["trace_id"]: _tokens(one) for one in raw}

    def session(self, name: str) -> tuple[list[str], tuple[int, ...]] | None:
        """The traces and tokens of a session, or None if Phoenix has none of that name."""
        answer = self._get(f"/v1/sessions/{quote(name, safe='')}")
        if answer is None:
            return None
        traces = sorted(answer["data"]["traces"], key=lambda one: str(one["start_time"]))
        return [one["trace_id"] for one in traces], _tokens(answer["data"])

    def _pages(self, path: str) -> Iterator[dict[str, Any]]:
        query: dict[str, Any] = {"limit": 1_000}
        while answer := self._get(f"{path}?{urlencode(query)}"):
            yield from answer["data"]
            if not (cursor := answer["next_cursor"]):
                return
            query["cursor"] = cursor

    def _get(self, path: str) -> Any:
        try:
            with process.direct.open(self.base + path, timeout=self.seconds) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                if error.code == 404:
                    return None
            raise


def _us(time: str) -> int:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return (datetime.fromisoformat(time) - epoch) // timedelta(microseconds=1)


def _span(raw: dict[str, Any]) -> SeenSpan:
    events = [
        SeenSpan(time_us=_us(one["timestamp"]), name=one["name"], attributes=one["attributes"])
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
