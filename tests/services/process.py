"""A service as a child process on free ports: started, awaited until it is ready, and ended."""

from __future__ import annotations

import fcntl
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

direct = build_opener(ProxyHandler({}))  # a proxy set for the machine does not reach 127.0.0.1


class ServiceFailed(Exception):
    """A service did not come up, or died; the message ends with the last lines of its log."""


class PortTaken(Exception):
    """Another process took a port between our choice and the service's use of it."""


class Service(NamedTuple):
    """The command of a service, and the signs that it is ready.

    It is ready when ``ready`` is in its log and ``health`` (a URL) answers with a success whose
    body has ``healthy``: the URL alone is not enough, because another process may have the port
    by now. It ended because a port was taken when one of ``taken`` is in its log.
    """

    name: str
    command: Sequence[str | Path]
    ready: bytes
    health: str
    healthy: bytes
    taken: Sequence[bytes]
    environ: Mapping[str, str] | None = None


def free_ports(number: int) -> tuple[int, ...]:
    """So many ports of 127.0.0.1 on which nobody listens just now, all different."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return tuple(one.getsockname()[1] for one in sockets)


@contextmanager
def running(
    of: Callable[[Path, tuple[int, ...]], Service], ports: int, seconds: float
) -> Iterator[tuple[int, ...]]:
    """Run a service until the end of the block, which gets its ports; it is ready when that begins.

    ``of`` makes it, of a temporary folder and free ports, anew where one was taken meanwhile.

    Raises PortTaken, ServiceFailed.
    """
    for left in reversed(range(5)):
        with tempfile.TemporaryDirectory(prefix="eventctx-service-") as name, ExitStack() as ending:
            chosen, log = free_ports(ports), Path(name, "log")
            service = of(Path(name), chosen)
            process = started(service.command, log, cwd=name, env=service.environ)
            ending.callback(end, process, signal.SIGTERM)
            try:
                _until_ready(service, process, log, seconds)
            except PortTaken:
                if not left:
                    raise
                continue
            yield chosen
            return


def _until_ready(
    service: Service, process: subprocess.Popen[bytes], log: Path, seconds: float
) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if service.ready in log.read_bytes() and _healthy(service):
            return
        try:
            process.wait(timeout=0.02)
        except subprocess.TimeoutExpired:
            continue
        error = (
            PortTaken if any(one in log.read_bytes() for one in service.taken) else ServiceFailed
        )
        raise error(f"{service.name} ended with exit code {process.returncode}; {tail(log)}")
    raise ServiceFailed(f"{service.name} was not ready after {seconds:g} s; {tail(log)}")


def _healthy(service: Service) -> bool:
    try:
        with direct.open(service.health, timeout=1) as answer:
            return service.healthy in answer.read()
    except (URLError, OSError, ValueError):
        return False


def started(command: Sequence[str | Path], log: Path, **options: Any) -> subprocess.Popen[bytes]:
    """A child that writes to the end of a log; ``options`` are those of ``subprocess.Popen``."""
    with log.open("ab") as out:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, **options
        )


def end(process: subprocess.Popen[bytes], how: signal.Signals, seconds: float = 5.0) -> None:
    """Send a signal, and kill what has not ended upon it after so long."""
    process.send_signal(how)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-20:]
    return "the last lines of its log:\n" + "\n".join(line[:400] for line in lines)


@contextmanager
def alone(lock: Path, name: str) -> Iterator[None]:
    """Hold a lock that the system frees when its holder dies; a process that waits prints so."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notice = f"another build of {name} is running; waiting for it"
            print(notice, file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
