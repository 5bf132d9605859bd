"""Runs the inspector: sockets, address to print, server, and a clean end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from eventctx.reader import Reader
from eventctx.web.access import Access
from eventctx.web.app import Inspector
from eventctx.web.guard import HEADERS, MOST_HEADERS
from eventctx.web.page_files import PageFile, page_files
from eventctx.web.sockets import LOOPBACK, listening

MOST_CONNECTIONS: Final = 256
_GRACE_SECONDS: Final = 2

REQUEST_SECONDS: Final = 10.0
"""How long a request's line and headers may take, and a new connection may be silent."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the command, which ends the streams first."""
        yield


def _configured(inspector: Inspector) -> uvicorn.Config:
    return uvicorn.Config(
        inspector.app,
        http=PatientConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        # Its warnings are of what clients send, which any page may do: the terminal stays ours.
        log_level="error",
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=MOST_HEADERS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


async def serve(
    reader: Reader,
    *,
    url: str,
    path: Path | None,
    ready: Callable[[str], None],
    stop: asyncio.Event,
    session: str | None = None,
    host: str = LOOPBACK,
    port: int = 0,
    reveal: bool = False,
    page: Mapping[str, PageFile] | None = None,
) -> None:
    """Serve the inspector of a reader until ``stop`` is set.

    ``url`` and ``path`` name the store, ``session`` the one that is shown first. ``ready`` gets the
    address to open, which works once. ``page`` are the page's files (None: the package's own).

    Raises InvalidSetting for an address that cannot be had.
    """
    page = page_files() if page is None else page
    sockets = listening(host, port)
    port = sockets[0].getsockname()[1]
    access = Access(port)
    start = "/" if session is None else f"/s/{quote(session, safe='')}"
    inspector = Inspector(
        reader, access, page,
        url=url, path=path, port=port, host=host, start=start, reveal=reveal,
    )  # fmt: skip
    server = _Server(_configured(inspector))

    async def ending() -> None:
        await stop.wait()
        inspector.end()
        server.should_exit = True

    waiting = asyncio.ensure_future(ending())
    try:
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{port}/?token={access.token}")
        await server.serve(sockets)
    finally:
        waiting.cancel()
        await inspector.close()
        for one in sockets:
            one.close()


class PatientConnection(H11Protocol):
    """An HTTP/1.1 connection that waits ``REQUEST_SECONDS`` for a request, and no longer.

    uvicorn waits for the rest of a request without a limit: a client that sends one byte a minute
    would hold a connection for ever. What is answered before the application is asked gets the
    application's headers too.
    """

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take bytes; the time runs from the first one of a request."""
        super().data_received(data)
        if self._is_idle():
            self._wait()
        else:
            self._stop()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request of HTTP."""
        body = msg.encode("ascii", "replace") + b"\n"
        headers = (
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *HEADERS,
        )
        lines = (b"HTTP/1.1 400 Bad Request", *[b"%b: %b" % one for one in headers], b"", body)
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        if self._limit is None:
            self._limit = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _give_up(self) -> None:
        self._limit = None
        if self._is_idle() and not self.transport.is_closing():
            self.transport.abort()
