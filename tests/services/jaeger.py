"""A real Jaeger v2 for the tests: one process, storage in memory, every port a free local one.

``python -m tests.services.jaeger build`` builds its binary, ``... path`` tells where it is.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from tests.services.jaeger_binary import find, main

# The last line of every OpenTelemetry collector's start, in the log of the process itself. Health
# alone does not say whose it is: a port can be another process's by now.
_READY = b"Everything is ready"
_TAKEN = b"address already in use"
_STOP_SECONDS = 5.0
_TAIL_LINES = 20

_direct = build_opener(ProxyHandler({}))  # a proxy set for the machine does not reach 127.0.0.1


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
    def http(self) -> str:
        """The endpoint for OTLP over HTTP, with the path of the traces."""
        return f"http://127.0.0.1:{self.ports.otlp_http}/v1/traces"

    @property
    def query(self) -> str:
        """The base address of the query API."""
        return f"http://127.0.0.1:{self.ports.query_http}"


class JaegerFailed(Exception):
    """Jaeger did not come up, or died; the message ends with the last lines of its log."""


class _PortTaken(Exception):
    """Between our choice of a port and Jaeger's use of it somebody else took it."""


def free_ports() -> Ports:
    """Five ports of 127.0.0.1 on which nobody listens just now."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in Ports._fields]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return Ports(*(one.getsockname()[1] for one in sockets))


@contextmanager
def start(
    binary: Path | None = None,
    *,
    seconds: float = 30.0,
    attempts: int = 5,
    choose: Callable[[], Ports] = free_ports,
) -> Iterator[Jaeger]:
    """Run Jaeger until the end of the block; it is ready when the block begins.

    ``seconds`` is the time for one attempt to become ready; another attempt, with other ports, is
    made only when a port was taken meanwhile.

    Raises:
        JaegerMissing, JaegerUnusable: there is no binary, see `find`.
        JaegerFailed: it did not become ready; with the tail of its log.
    """
    binary = binary or find()
    with tempfile.TemporaryDirectory(prefix="eventctx-jaeger-") as folder:
        for attempt in range(1, attempts + 1):
            try:
                with _running(binary, choose(), Path(folder), seconds) as jaeger:
                    yield jaeger
                return
            except _PortTaken as error:
                if attempt == attempts:
                    raise JaegerFailed(
                        f"every one of {attempts} choices of free ports was taken before Jaeger "
                        f"had them; {error}"
                    ) from None


@contextmanager
def _running(binary: Path, ports: Ports, folder: Path, seconds: float) -> Iterator[Jaeger]:
    settings, log = folder / "config.yaml", folder / f"jaeger-{ports.health}.log"
    settings.write_text(json.dumps(configuration(ports)))  # JSON is YAML
    with log.open("wb") as out:
        process = subprocess.Popen(
            [binary, f"--config={settings}"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        _until_ready(process, ports, log, seconds)
        yield Jaeger(ports, log, process.pid)
    finally:
        _stop(process)


def _until_ready(process: subprocess.Popen[bytes], ports: Ports, log: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if _READY in log.read_bytes() and _healthy(ports.health):
            return
        try:
            process.wait(timeout=0.02)
        except subprocess.TimeoutExpired:
            continue
        if _TAKEN in log.read_bytes():
            raise _PortTaken(_tail(log))
        raise JaegerFailed(
            f"Jaeger should run, but ended with exit code {process.returncode}; {_tail(log)}"
        )
    raise JaegerFailed(f"Jaeger was not ready after {seconds:g} s; {_tail(log)}")


def _healthy(port: int) -> bool:
    try:
        with _direct.open(f"http://127.0.0.1:{port}/status", timeout=1) as answer:
            return json.load(answer).get("healthy") is True
    except (URLError, OSError, ValueError):
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
    return "the last lines of its log:\n" + "\n".join(line[:400] for line in lines)


def configuration(ports: Ports) -> dict[str, Any]:
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
