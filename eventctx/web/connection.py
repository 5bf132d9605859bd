"""A connection that ends when a request does not come to its end.

uvicorn waits for the rest of a request without a limit, so whoever sends one byte a minute holds a
connection for ever. Here a request has some seconds from its first byte to its last header.

What is answered before the application is asked gets the application's headers too.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from eventctx.web.guard import HEADERS

REQUEST_SECONDS: Final = 10.0
"""How long a request's line and headers may take, and a new connection may be silent."""


class PatientConnection(H11Protocol):
    """An HTTP/1.1 connection that waits ``REQUEST_SECONDS`` for a request, and no longer."""

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
