"""A session as it grows: server-sent events whose id is the position of the log.

Each stream asks for what came after the position that it sent last, so a slow reader makes nothing
wait and nothing pile up: it misses no record, it gets more of them in one event. ``Last-Event-ID``
is that position, so a connection that was lost goes on without a gap.

The subscription notices commits of other processes within 20 ms, and reads without a lock that a
writer would wait for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any, Final, cast

from starlette.types import Receive, Scope, Send

from eventctx.errors import EventctxError, StreamNotFound
from eventctx.hooks.result_redactor import ResultRedactor
from eventctx.log.record import Record
from eventctx.queries.encoding import encode
from eventctx.reader import Reader
from eventctx.web.store_file import StoreFile
from eventctx.web.timelines import Timelines

BATCH_SECONDS: Final = 0.04
"""How long records are gathered: a turn's records come in bursts, and a page draws them once."""

PING_SECONDS: Final = 15.0
"""Silence after which a comment is sent, so that both ends notice a connection that is gone."""

SEND_SECONDS: Final = 30.0
"""How long a reader may take for one event before its stream is given up."""

MOST_STREAMS: Final = 48
"""Streams of one server. A browser has six connections to one address, over all its tabs."""

RETRY_MILLISECONDS: Final = 1_000


_log = logging.getLogger("eventctx.web")


class Streams:
    """The streams of one server: they are counted, and all end when the server does."""

    def __init__(self) -> None:
        self.open = 0
        self.over = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether no further stream is taken."""
        return self.open >= MOST_STREAMS


class SessionStream:
    """One stream, as an ASGI response: what came after ``position``, then what comes."""

    def __init__(
        self,
        reader: Reader,
        timelines: Timelines,
        redactor: ResultRedactor,
        streams: Streams,
        file: StoreFile,
        session: str,
        position: int,
    ) -> None:
        self._reader = reader
        self._timelines = timelines
        self._redactor = redactor
        self._streams = streams
        self._file = file
        self._session = session
        self._position = position

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the reader or the server goes away."""
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        self._streams.open += 1
        ends = [asyncio.ensure_future(_gone(receive)), asyncio.ensure_future(self._over())]
        pumping = asyncio.ensure_future(self._pump(send))
        try:
            await asyncio.wait([*ends, pumping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._streams.open -= 1
            for task in (*ends, pumping):
                task.cancel()
            *_, outcome = await asyncio.gather(*ends, pumping, return_exceptions=True)
        if isinstance(outcome, Exception):
            _log.error("the stream of session %r broke", self._session, exc_info=outcome)
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b""})

    async def _over(self) -> None:
        await self._streams.over.wait()

    async def _pump(self, send: Send) -> None:
        await _put(send, b"retry: %d\n\n" % RETRY_MILLISECONDS)
        try:
            if await self._is_elsewhere():
                await self._send_news(send)
            async for _ in self._news(send):
                await asyncio.sleep(BATCH_SECONDS)
                await self._send_news(send)
        except EventctxError as error:
            text = self._redactor.text(str(error))
            await _put(send, _event(b"trouble", encode({"error": text})))
        except TimeoutError:
            return  # the reader took too long; it may come back and go on

    async def _is_elsewhere(self) -> bool:
        """Whether the log does not end where the page does: then its document says how it goes on.

        Raises StreamNotFound.
        """
        head = await self._reader.store.head(self._session)
        if head is None or head.deleted:
            raise StreamNotFound(self._session)
        return self._position != head.head

    async def _news(self, send: Send) -> AsyncIterator[None]:
        """One item each time that there are records which were not sent yet."""
        found = self._reader.store.subscribe(stream=self._session, after=self._position)
        records = cast(AsyncGenerator[Record, None], found)
        waiting: asyncio.Future[Record] | None = None
        try:
            while True:
                waiting = asyncio.ensure_future(anext(records))
                while not (await asyncio.wait([waiting], timeout=PING_SECONDS))[0]:
                    self._file.check()
                    await _put(send, b": still here\n\n")
                if waiting.result().position > self._position:
                    yield
        except StopAsyncIteration:
            return  # the store was closed
        finally:
            if waiting is not None:
                waiting.cancel()
                await asyncio.wait([waiting])
            await records.aclose()

    async def _send_news(self, send: Send) -> None:
        document = await self._timelines.document(self._session, self._position)
        shown = await asyncio.to_thread(lambda: encode(self._redactor.timeline(document)))
        self._position = document["head"]
        await _put(send, _event(b"timeline", shown, self._position))


def _event(name: bytes, data: bytes, position: int | None = None) -> bytes:
    # JSON has no line break outside of its texts, and there it is escaped.
    where = b"" if position is None else b"id: %d\n" % position
    return where + b"event: " + name + b"\ndata: " + data + b"\n\n"


async def _put(send: Send, data: bytes) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def _gone(receive: Receive) -> None:
    message: Any = {}
    while message.get("type") != "http.disconnect":
        message = await receive()
