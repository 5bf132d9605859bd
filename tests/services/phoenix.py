"""A real Phoenix (arize-phoenix) for the tests that request it: opt-in, 850 MB.

``python -m venv FOLDER`` and ``FOLDER/bin/pip install arize-phoenix==20.26.1`` install it, apart
because its 158 packages pin what ours do not; ``$EVENTCTX_PHOENIX`` is the path of that Python.

Its OTLP over gRPC listens on every interface, whatever its settings; the rest on 127.0.0.1 only.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

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
