"""A service as a child process: on free ports, ready when it and its log say so, then ended."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

_STOP_SECONDS = 5.0
_TAIL_LINES = 20

_direct = build_opener(ProxyHandler({}))  # a proxy set for the machine does not reach 127.0.0.1

_T = TypeVar("_T")


class ServiceFailed(Exception):
    """A service did not come up, or died; the message ends with the last lines of its log."""


class PortTaken(Exception):
    """Between our choice of a port and the service's use of it somebody else took it."""


class Service(NamedTuple):
    """What is run, and how one sees that it is ready.

    Ready is when ``ready`` stands in its log and ``health`` (a URL) is answered with a success
    whose body passes ``healthy``: health alone does not say whose it is, since a port can be
    another process's by now. It ended because a port was taken when one of ``taken`` stands there.
    """

    name: str
    command: Sequence[str | Path]
    ready: bytes
    health: str
    healthy: Callable[[bytes], bool]
    taken: Sequence[bytes]
    environ: Mapping[str, str] | None = None


class Running(NamedTuple):
    """A service that is ready; what it writes goes to ``log``."""

    log: Path
    pid: int


def free_ports(number: int) -> tuple[int, ...]:
    """So many ports of 127.0.0.1 on which nobody listens just now, all different."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return tuple(one.getsockname()[1] for one in sockets)


@contextmanager
def running(service: Service, folder: Path, log: Path, seconds: float) -> Iterator[Running]:
    """Run the service in ``folder`` until the end of the block; it is ready when that begins.

    Raises:
        PortTaken: it ended because a port was taken.
        ServiceFailed: it ended otherwise, or was not ready within ``seconds``.
    """
    with log.open("wb") as out:
        process = subprocess.Popen(
            service.command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=service.environ,
        )
    try:
        _until_ready(service, process, log, seconds)
        yield Running(log, process.pid)
    finally:
        _stop(process)


@contextmanager
def on_free_ports(
    name: str, run: Callable[[], AbstractContextManager[_T]], attempts: int
) -> Iterator[_T]:
    """Enter ``run()``, which chooses ports anew, until none of them is taken meanwhile.

    Raises:
        ServiceFailed: a port was taken in every attempt.
    """
    for attempt in range(1, attempts + 1):
        try:
            with run() as started:
                yield started
            return
        except PortTaken as error:
            if attempt == attempts:
                raise ServiceFailed(
                    f"every one of {attempts} choices of free ports was taken before {name} "
                    f"had them; {error}"
                ) from None


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
        said = log.read_bytes()
        if any(mark in said for mark in service.taken):
            raise PortTaken(_tail(log))
        raise ServiceFailed(
            f"{service.name} should run, but ended with exit code {process.returncode}; "
            f"{_tail(log)}"
        )
    raise ServiceFailed(f"{service.name} was not ready after {seconds:g} s; {_tail(log)}")


def _healthy(service: Service) -> bool:
    try:
        with _direct.open(service.health, timeout=1) as answer:
            return service.healthy(answer.read())
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
