"""A server of the inspector in a thread of its own, spoken to by raw sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pytest

import eventctx
from eventctx.web.page_files import PageFile
from eventctx.web.serving import serve
from tests.cli.conftest import _written as _written
from tests.cli.conftest import run as run
from tests.cli.conftest import store as store

PAGE = {
    "index.html": PageFile("text/html; charset=utf-8", b"<!doctype html><title>page</title>"),
    "parts/text.js": PageFile("text/javascript; charset=utf-8", b"export const one = 1;\n"),
}


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Served:
    """A running server; ``cookie`` is what a browser got for the token."""

    def __init__(self, path: Path, **options: Any) -> None:
        self._path, self._options = path, options
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(60)
        if self._failed is not None:
            raise self._failed
        place = self.address.removeprefix("http://")
        self.host, _, self.target = place.partition("/")
        self.port = int(self.host.rpartition(":")[2])
        self.token = self.target.partition("token=")[2]
        self.cookie = ""

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failed = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()

        def ready(address: str) -> None:
            self.address = address
            self._ready.set()

        options = {"page": PAGE, **self._options}
        async with eventctx.open(self._path, read_only=True) as engine:
            given = {"url": str(self._path), "path": self._path, "ready": ready}
            await serve(engine, stop=self._stop, **given, **options)

    def stop(self) -> None:
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def enter(self) -> Reply:
        """Use the token as a browser does, and keep the cookie."""
        reply = self.raw(f"GET /{self.target} HTTP/1.1\r\nHost: {self.host}\r\n\r\n")
        self.cookie = reply.headers.get("set-cookie", "").partition(";")[0]
        return reply

    def connect(self, family: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection((family, self.port), timeout=60)

    def raw(self, request: str | bytes) -> Reply:
        """Send these bytes on a connection of their own; the answer to its end."""
        data = request.encode("latin-1") if isinstance(request, str) else request
        with self.connect() as connection:
            connection.sendall(data)
            return read_reply(connection)

    def _request(self, target: str, *more: str, method: str = "GET") -> str:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.host}", *more]
        if self.cookie and not any(one.lower().startswith("cookie:") for one in more):
            lines.append(f"Cookie: {self.cookie}")
        return "\r\n".join(lines) + "\r\n\r\n"

    def get(self, target: str, *more: str, method: str = "GET") -> Reply:
        """A request as our own page sends it, with ``more`` lines of headers."""
        return self.raw(self._request(target, *more, method=method))

    def open_stream(self, target: str, *more: str) -> Stream:
        connection = self.connect()
        connection.sendall(self._request(target, *more).encode())
        return Stream(connection)


class Event(NamedTuple):
    name: str
    id: str | None
    data: Any


class Stream:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._file = connection.makefile("rb")
        self.status, self.headers = read_head(self._file)
        self._lines = self._read_lines()

    def _read_lines(self) -> Iterator[str]:
        rest = b""
        for chunk in read_chunks(self._file):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from [line.decode() for line in lines]

    def event(self) -> Event | None:
        """The next event, comments left out; None at the end."""
        found: dict[str, str] = {}
        for line in self._lines:
            if not line and "data" in found:
                data = json.loads(found["data"])
                return Event(found.get("event", "message"), found.get("id"), data)
            name, _, value = line.partition(": ")
            found[name] = value
        return None

    def close(self) -> None:
        self._file.close()
        self.connection.close()


def read_head(file: BinaryIO) -> tuple[int, dict[str, str]]:
    """The status of an answer, 0 without one, and its headers."""
    first = file.readline().split()
    if len(first) < 2:
        return 0, {}
    headers: dict[str, str] = {}
    while (line := file.readline().strip()) and b":" in line:
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return int(first[1]), headers


def read_chunks(file: BinaryIO) -> Iterator[bytes]:
    while length := int(file.readline() or b"0", 16):
        yield file.read(length)
        file.readline()


def read_reply(connection: socket.socket) -> Reply:
    """One whole answer. A connection that ends without one has status 0."""
    with connection.makefile("rb") as file:
        status, headers = read_head(file)
        if headers.get("transfer-encoding") == "chunked":
            return Reply(status, headers, b"".join(read_chunks(file)))
        return Reply(status, headers, file.read(int(headers.get("content-length", 0))))


@pytest.fixture
def serving() -> Iterator[Callable[..., Served]]:
    """Start a server on a store; all that were started end with the test."""
    started: list[Served] = []

    def start(path: Path, *, entered: bool = True, **options: Any) -> Served:
        made = Served(path, **options)
        started.append(made)
        if entered:
            assert made.enter().status == 303
        return made

    yield start
    for one in started:
        one.stop()


@pytest.fixture(scope="module")
def served(_written: bytes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on the session ``work``, entered as by a browser, for all tests of a file."""
    path = tmp_path_factory.mktemp("served") / "s.db"
    path.write_bytes(_written)
    made = Served(path)
    assert made.enter().status == 303
    yield made
    made.stop()
