"""A real Jaeger v2 for the tests: one process, storage in memory, every port a free local one.

``python -m tests.services.jaeger build`` builds its binary, ``... path`` tells where it is.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.services import process
from tests.services.jaeger_binary import find, main

# The last line of every OpenTelemetry collector's start, in the log of the process itself.
_READY = b"Everything is ready"
_TAKEN = b"address already in use"


class Ports(NamedTuple):
    """The five ports that Jaeger listens on, all on 127.0.0.1."""

    otlp_grpc: int
    otlp_http: int
    query_http: int
    query_grpc: int
    health: int


class Jaeger(NamedTuple):
    """A running Jaeger."""

    ports: Ports
    log: Path
    pid: int

    @property
    def grpc(self) -> str:
        """The endpoint for OTLP over gRPC, as the official exporter takes it."""
        return f"http://127.0.0.1:{self.ports.otlp_grpc}"

    @property
    def http_base(self) -> str:
        """The endpoint for OTLP over HTTP, as `trace --otlp` takes it."""
        return f"http://127.0.0.1:{self.ports.otlp_http}"

    @property
    def http(self) -> str:
        """The endpoint for OTLP over HTTP, with the path of the traces."""
        return f"{self.http_base}/v1/traces"

    @property
    def query(self) -> str:
        """The base address of the query API."""
        return f"http://127.0.0.1:{self.ports.query_http}"


def free_ports() -> Ports:
    """Five ports of 127.0.0.1 on which nobody listens just now."""
    return Ports(*process.free_ports(len(Ports._fields)))


@contextmanager
def start(
    binary: Path | None = None,
    *,
    ui: Path | None = None,
    seconds: float = 60.0,
    attempts: int = 5,
    choose: Callable[[], Ports] = free_ports,
) -> Iterator[Jaeger]:
    """Run Jaeger until the end of the block; it is ready when the block begins.

    ``ui`` is a folder with the web interface's files; without it Jaeger has a page that says so.
    ``seconds`` is the time for one attempt to become ready; another attempt, with other ports, is
    made only when a port was taken meanwhile.

    Raises:
        JaegerMissing, JaegerUnusable: there is no binary, see `find`.
        ServiceFailed: it did not become ready; with the tail of its log.
    """
    found = binary or find()
    with tempfile.TemporaryDirectory(prefix="eventctx-jaeger-") as folder:

        def run() -> AbstractContextManager[Jaeger]:
            return _running(found, choose(), Path(folder), seconds, ui)

        with process.on_free_ports("Jaeger", run, attempts) as jaeger:
            yield jaeger


@contextmanager
def _running(
    binary: Path, ports: Ports, folder: Path, seconds: float, ui: Path | None
) -> Iterator[Jaeger]:
    settings, log = folder / "config.yaml", folder / f"jaeger-{ports.health}.log"
    settings.write_text(json.dumps(configuration(ports, ui)))  # JSON is YAML
    service = process.Service(
        name="Jaeger",
        command=[binary, f"--config={settings}"],
        ready=_READY,
        health=f"http://127.0.0.1:{ports.health}/status",
        healthy=lambda body: json.loads(body).get("healthy") is True,
        taken=[_TAKEN],
    )
    with process.running(service, folder, log, seconds) as started:
        yield Jaeger(ports, started.log, started.pid)


def configuration(ports: Ports, ui: Path | None = None) -> dict[str, Any]:
    """Jaeger's settings: OTLP in, memory, query API; nothing else listens, nothing is batched.

    Without a batch processor an export is answered after it was stored.
    """

    def at(port: int) -> dict[str, str]:
        return {"endpoint": f"127.0.0.1:{port}"}

    return {
        "service": {
            "extensions": ["jaeger_storage", "jaeger_query", "healthcheckv2"],
            "pipelines": {
                "traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}
            },
            "telemetry": {
                "resource": {"service.name": "jaeger"},
                "metrics": {"level": "none"},
                "logs": {"level": "info"},
            },
        },
        "extensions": {
            "jaeger_storage": {"backends": {"memory": {"memory": {"max_traces": 100_000}}}},
            "jaeger_query": {
                "storage": {"traces": "memory"},
                # else it sends spans of its own to port 4317, whoever listens there, and its
                # end waits ten seconds for them
                "enable_tracing": False,
                "http": at(ports.query_http),
                "grpc": at(ports.query_grpc),
                **({"ui": {"assets_path": str(ui)}} if ui else {}),
            },
            "healthcheckv2": {"use_v2": True, "http": at(ports.health)},
        },
        "receivers": {
            "otlp": {"protocols": {"grpc": at(ports.otlp_grpc), "http": at(ports.otlp_http)}}
        },
        "exporters": {"jaeger_storage_exporter": {"trace_storage": "memory"}},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
