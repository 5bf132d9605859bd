"""The relay: passes the bytes of HTTP/1.1 on as they come, and keeps a copy of each call.

Of a request only the first line and ``host`` are written anew; of an answer nothing is. A piece of
an answer is passed on before it is looked at. An unknown protocol, such as a WebSocket, is
passed on blindly, so nothing that happens here can cost an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import h11

from eventctx.proxy.call_copy import CallCopy, SeenCall
from eventctx.proxy.dialing import MOST_HEAD, Dialer, Streams
from eventctx.proxy.gate import MOST_IDLE, Gate, Refusal
from eventctx.proxy.program import Choose, Upstream

if TYPE_CHECKING:
    from eventctx.proxy.websocket import WebSocketCopy

_PIECE: Final = 64 * 1024


class Relay:
    """A server on a free port of this machine. ``seen`` gets each call when it has ended.

    ``environment`` names proxies and authorities. Raises InvalidSetting.
    """

    def __init__(
        self,
        choose: Choose,
        seen: Callable[[SeenCall], None],
        environment: Mapping[str, str] | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._gate = gate or Gate()
        self._choose = choose
        self._seen = seen
        self._dialer = Dialer(environment or {})
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.port = 0
        self.unread = 0
        """Connections that were passed on without a call that could be read, as WebSockets are."""

    async def start(self, port: int = 0) -> None:
        """Listen; ``port`` 0 takes a free one. Raises OSError."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", port, limit=MOST_HEAD, backlog=128
        )
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        """The address for the program, to whose paths alone the relay answers."""
        return self._gate.url(self.port)

    async def close(self) -> None:
        """Stop listening, and end what is open."""
        if self._server is not None:
            self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _miss(self) -> None:
        self.unread += 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a callback of the server is one
        self._open.add(task)
        ends = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
        connection = _Connection(
            reader, writer, self._gate, self._choose, self._seen, self._miss, self._dialer
        )
        try:
            if await asyncio.to_thread(self._gate.knows, *ends):
                await connection.run()
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # one of the two sides is gone, and the other one hears of it by our close
        finally:
            self._open.discard(task)
            connection.close()


class _Connection:
    """One connection of the program, and the one to its server."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gate: Gate,
        choose: Choose,
        seen: Callable[[SeenCall], None],
        unread: Callable[[], None],
        dialer: Dialer,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._gate = gate
        self._choose = choose
        self._seen = seen
        self._unread = unread
        self._dialer = dialer
        self._origin: tuple[str, str, int] | None = None
        self._up: Streams | None = None
        self._rest = b""

    def close(self) -> None:
        """Close both sides."""
        for writer in (self._writer, None if self._up is None else self._up[1]):
            if writer is not None:
                with contextlib.suppress(OSError, RuntimeError):
                    writer.close()

    async def run(self) -> None:
        """Pass one request after the other on, until a side closes."""
        while await self._exchange():
            pass

    async def _exchange(self) -> bool:
        """Pass a request and its answer on; whether the connection goes on."""
        head = await self._head()
        if not head:
            return False
        began = time.time_ns()
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
        parser.receive_data(head)
        try:
            request = parser.next_event()
        except h11.RemoteProtocolError:
            request = h11.NEED_DATA
        if not isinstance(request, h11.Request):
            self._refuse(b"400 Bad Request", "eventctx record: expected a request of HTTP/1.1\n")
            return False
        headers = list(request.headers)
        port = self._writer.get_extra_info("sockname")[1]
        path = self._gate.path_of(request.target.decode("latin-1"), headers, port)
        if isinstance(path, Refusal):
            self._refuse(path.status, f"eventctx record: {path.reason}\n")
            return False
        chosen = self._choose(path, headers)
        if chosen is None:
            self._refuse(b"404 Not Found", f"eventctx record: no API is known at {path}\n")
            return False
        upstream, path = chosen
        try:
            up_reader, up_writer = await self._connected(upstream)
        except OSError as error:
            text = f"eventctx record: {upstream.url.hostname} cannot be reached: {error}\n"
            self._refuse(b"502 Bad Gateway", text)
            return False
        proxy = self._dialer.proxy(upstream.url) if upstream.url.scheme == "http" else None
        named = b"" if proxy is None else proxy.authorization
        target = path if proxy is None else f"http://{_named(upstream)}{path}"
        up_writer.write(_rewritten(head, target, upstream, named))
        copy = CallCopy(request, upstream.url.hostname or "", path, began)
        sending = asyncio.create_task(self._send(parser, up_writer, copy))
        try:
            return await self._answer(up_reader, copy, sending)
        finally:
            # Before anything is waited for: at our end this task is cancelled.
            seen = copy.seen()
            if seen is not None:
                self._seen(seen)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def _refuse(self, status: bytes, reason: str) -> None:
        text = reason.encode()
        head = b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: %d\r\n" % (status, len(text))
        self._writer.write(head + b"content-type: text/plain; charset=utf-8\r\n\r\n" + text)

    async def _head(self) -> bytes:
        if self._up is not None and not self._rest:  # the next request of a program that we know
            async with asyncio.timeout(MOST_IDLE):
                self._rest = await self._reader.read(_PIECE)
            if not self._rest:
                return b""
        async with self._gate.waiting():
            while b"\r\n\r\n" not in self._rest:
                piece = await self._reader.read(_PIECE)
                if not piece or len(self._rest) > MOST_HEAD:
                    return b""
                self._rest += piece
        end = self._rest.index(b"\r\n\r\n") + 4
        head, self._rest = self._rest[:end], self._rest[end:]
        return head

    async def _connected(self, upstream: Upstream) -> Streams:
        if self._up is not None and self._origin == upstream.origin and not self._up[0].at_eof():
            return self._up
        if self._up is not None:
            self._up[1].close()
            self._up = None
        self._up = await self._dialer.connect(upstream.url)
        self._origin = upstream.origin
        return self._up

    async def _send(
        self, parser: h11.Connection, up_writer: asyncio.StreamWriter, copy: CallCopy
    ) -> None:
        """Pass a request's body on, then wait until the program closes or asks again."""
        piece, self._rest = self._rest, b""
        while True:
            if piece:
                parser.receive_data(piece)
            ended = copy.take_sent(parser)
            behind = parser.trailing_data[0] if ended else b""
            up_writer.write(piece[: len(piece) - len(behind)])
            await up_writer.drain()
            if ended:
                self._rest = behind
                break
            piece = await self._reader.read(_PIECE)
            if not piece:
                raise EOFError
        while not self._rest:
            piece = await self._reader.read(_PIECE)
            if not piece:
                raise EOFError
            self._rest += piece

    async def _answer(
        self, up_reader: asyncio.StreamReader, copy: CallCopy, sending: asyncio.Task[None]
    ) -> bool:
        """Pass the answer on; whether both connections may be used again."""
        while not copy.answer_ended:
            reading = asyncio.ensure_future(up_reader.read(_PIECE))
            await asyncio.wait({reading, sending}, return_when=asyncio.FIRST_COMPLETED)
            gone = sending.done() and isinstance(sending.exception(), EOFError)
            if gone and not reading.done():
                reading.cancel()
                return False
            piece = await reading
            if not piece:
                copy.take_answer(b"")
                return False
            self._writer.write(piece)
            try:
                await self._writer.drain()
            finally:
                copy.take_answer(piece)
            if copy.blind:
                await self._splice(up_reader, sending, copy)
                return False
        return copy.reusable

    async def _splice(
        self, up_reader: asyncio.StreamReader, sending: asyncio.Task[None], copy: CallCopy
    ) -> None:
        """Pass everything on in both directions, until one side closes."""
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert self._up is not None  # noqa: S101 - the answer came from there
        up_writer = self._up[1]
        up_writer.write(self._rest)
        messages = _websocket(copy, self._seen)
        if messages is not None:
            messages.take_sent(self._rest)
        sent = None if messages is None else messages.take_sent
        answered = None if messages is None else messages.take_answer
        both = {
            asyncio.ensure_future(_pump(up_reader, self._writer, answered)),
            asyncio.ensure_future(_pump(self._reader, up_writer, sent)),
        }
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if messages is not None:
                messages.end()
            if messages is None or not messages.calls:
                self._unread()
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)


def _websocket(copy: CallCopy, seen: Callable[[SeenCall], None]) -> WebSocketCopy | None:
    """The copy of the WebSocket that a connection has become; None for anything else."""
    upgrades = [value.lower() for name, value in copy.request.headers if name == b"upgrade"]
    if copy.switched is None or b"websocket" not in upgrades:
        return None
    try:
        from eventctx.proxy.websocket import WebSocketCopy
    except ModuleNotFoundError:  # of an extra that was installed before WebSockets were read
        return None
    return WebSocketCopy(copy, seen)


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    taken: Callable[[bytes], None] | None,
) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        if taken is not None:
            taken(piece)
        await writer.drain()


def _rewritten(head: bytes, target: str, upstream: Upstream, named: bytes) -> bytes:
    """A request's head with the server's path and name; all other bytes stay.

    ``named`` is the line that names us to a proxy.
    """
    first, *lines = head.split(b"\r\n")
    method, _, version = first.split(b" ", 2)
    host = _named(upstream).encode()
    kept = [
        b"%s: %s" % (line.partition(b":")[0], host) if line[:5].lower() == b"host:" else line
        for line in lines
    ]
    request = b" ".join((method, target.encode("latin-1"), version))
    return b"\r\n".join([request, named + kept[0], *kept[1:]])


def _named(upstream: Upstream) -> str:
    """The server's name and port as a request names them."""
    return upstream.url.netloc.rpartition("@")[2]
