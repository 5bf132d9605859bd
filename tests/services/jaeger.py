"""A real Jaeger v2 for the tests: one process, storage in memory, every port a free local one.

``python -m tests.services.jaeger build`` builds its binary, ``... path`` tells where it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.services import process
from tests.services.jaeger_binary import find, main


class Jaeger(NamedTuple):
    otlp_grpc: int
    otlp_http: int
    query_http: int
    query_grpc: int
    health: int

    @property
    def grpc(self) -> str:
        """The endpoint for OTLP over gRPC, as `trace --otlp` takes it."""
        return f"grpc://127.0.0.1:{self.otlp_grpc}"

    @property
    def http_base(self) -> str:
        """The endpoint for OTLP over HTTP, as `trace --otlp` takes it."""
        return f"http://127.0.0.1:{self.otlp_http}"

    @property
    def http(self) -> str:
        """The endpoint for OTLP over HTTP, with the path of the traces."""
        return f"{self.http_base}/v1/traces"

    @property
    def query(self) -> str:
        return f"http://127.0.0.1:{self.query_http}"


@contextmanager
def start(binary: Path | None = None, *, ui: Path | None = None) -> Iterator[Jaeger]:
    """Run Jaeger until the end of the block; it is ready when the block begins.

    ``ui`` is a folder with the web interface's files; without it Jaeger has a page that says so.

    Raises JaegerMissing, PortTaken, ServiceFailed.
    """
    found = binary or find()

    def service(folder: Path, ports: tuple[int, ...]) -> process.Service:
        jaeger, settings = Jaeger(*ports), folder / "config.yaml"
        settings.write_text(configuration(jaeger, ui))
        return process.Service(
            name="Jaeger",
            command=[found, f"--config={settings}"],
            # the last line of every OpenTelemetry collector's start, in the log of the process
            ready=b"Everything is ready",
            health=f"http://127.0.0.1:{jaeger.health}/status",
            healthy=b'"healthy":true',
            taken=[b"address already in use"],
        )

    with process.running(service, len(Jaeger._fields), 60.0) as ports:
        yield Jaeger(*ports)


def configuration(jaeger: Jaeger, ui: Path | None) -> str:
    """Jaeger's settings: OTLP in, memory, query API; nothing else listens, nothing is batched.

    Without a batch processor an export is answered after it was stored. With ``enable_tracing`` it
    sends spans of its own to port 4317, whoever listens there, and its end waits for them.
    """
    grpc, http, query, query_grpc, health = (f"{{endpoint: '127.0.0.1:{one}'}}" for one in jaeger)
    page = f"ui: {{assets_path: '{ui}'}}" if ui else ""
    return f"""\
service:
  extensions: [jaeger_storage, jaeger_query, healthcheckv2]
  pipelines: {{traces: {{receivers: [otlp], exporters: [jaeger_storage_exporter]}}}}
  telemetry: {{resource: {{service.name: jaeger}}, metrics: {{level: none}}, logs: {{level: info}}}}
extensions:
  jaeger_storage: {{backends: {{memory: {{memory: {{max_traces: 100000}}}}}}}}
  jaeger_query:
    storage: {{traces: memory}}
    enable_tracing: false
    http: {query}
    grpc: {query_grpc}
    {page}
  healthcheckv2: {{use_v2: true, http: {health}}}
receivers: {{otlp: {{protocols: {{grpc: {grpc}, http: {http}}}}}}}
exporters: {{jaeger_storage_exporter: {{trace_storage: memory}}}}
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
