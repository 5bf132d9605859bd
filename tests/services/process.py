"""A service as a child process on free ports: started, awaited until it is ready, and ended."""

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
    """Another process took a port between our choice and the service's use of it."""


class Service(NamedTuple):
    """The command of a service, and the signs that it is ready.

    It is ready when ``ready`` is in its log and ``health`` (a URL) answers with a success whose
    body passes ``healthy``: the URL alone is not enough, because another process may have the port
    by now. It ended because a port was taken when one of ``taken`` is in its log.
    """

    name: str
    command: Sequence[str | Path]
    ready: bytes
    health: str
    healthy: Callable[[bytes], bool]
    taken: Sequence[bytes]
    environ: Mapping[str, str] | None = None


class Running(NamedTuple):
    """A service that is ready; its output goes to ``log``."""

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
        output = log.read_bytes()
        if any(mark in output for mark in service.taken):
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
