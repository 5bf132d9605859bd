"""An HTTP server on this machine that answers by a script and keeps the requests; its clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from eventctx.testing.strict_provider import Api, violations

Event = dict[str, Any]


# The SDKs take seconds to import, and a process may need one of them.


def http(sdk: Any) -> Any:
    """An SDK's connections, without TLS: to read all known authorities takes longer than a test."""
    return sdk.DefaultAsyncHttpxClient(verify=False)


def claude_client(url: str, **more: Any) -> Any:
    import anthropic

    return anthropic.AsyncAnthropic(
        **{"api_key": "k", "base_url": url, "http_client": http(anthropic)} | more
    )


def openai_client(url: str, **more: Any) -> Any:
    import openai

    return openai.AsyncOpenAI(
        **{"api_key": "k", "base_url": url, "http_client": http(openai)} | more
    )


@dataclass
class ReceivedRequest:
    """A request that the server received; ``body`` is its JSON."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def refused(request: ReceivedRequest) -> str | None:
    """The error with which the API at this path refuses the request; None if it does not."""
    api: Api = "openai-chat"
    if request.path.startswith("/v1/messages"):
        api = "anthropic"
    elif request.path.endswith("/responses"):
        api = "openai-responses"
    broken = violations(api, request.body)
    return broken[0].message if broken else None


@dataclass
class Reply:
    """An answer. ``pieces`` are sent one by one; ``ending`` is one of three.

    ``whole`` ends as HTTP requires, ``cut`` closes the connection in the middle, ``stalled`` sends
    nothing more until the other side closes.
    """

    pieces: list[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    ending: str = "whole"


def json_reply(body: Any, status: int = 200, **headers: str) -> Reply:
    """An answer in one piece: ``body`` as JSON, or bytes as they are."""
    named = {"content-type": "application/json"}
    named.update((name.replace("_", "-"), value) for name, value in headers.items())
    # No API answers with NaN, which is no JSON.
    content = body if isinstance(body, bytes) else json.dumps(body, allow_nan=False).encode()
    return Reply([content], status, named)


def streamed(events: Iterable[Event | str], ending: str = "whole") -> Reply:
    """Server-sent events, each named by its ``type`` where it has one."""
    pieces = []
    for event in events:
        if isinstance(event, str):
            pieces.append(f"data: {event}\n\n".encode())
            continue
        name = f"event: {event['type']}\n" if "type" in event else ""
        pieces.append(f"{name}data: {json.dumps(event)}\n\n".encode())
    return Reply(pieces, 200, {"content-type": "text/event-stream"}, ending)


class Server:
    """Answers each request with the next of ``replies``.

    ``strict`` checks a request first; if it returns a text, that is the error of an answer with
    status 400. ``closed`` is set when the other side closes a connection whose reply is stalled,
    ``reached`` when a reply stalls.
    """

    def __init__(
        self, strict: Callable[[ReceivedRequest], str | None] = lambda request: None
    ) -> None:
        self.replies: list[Reply] = []
        self.requests: list[ReceivedRequest] = []
        self.reached = asyncio.Event()
        self.closed = asyncio.Event()
        self.url = ""
        self._strict = strict
        self._connections: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._exchange(reader, writer)
        except ConnectionError:
            self.closed.set()
        finally:
            self._connections.discard(task)
            writer.close()

    async def finish(self) -> None:
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _read(reader)
        self.requests.append(request)
        problem = self._strict(request)
        error = {"type": "invalid_request_error", "message": problem}
        reply = self.replies.pop(0) if problem is None else json_reply({"error": error}, 400)
        head = [f"HTTP/1.1 {reply.status} .", "connection: close", "transfer-encoding: chunked"]
        head += [f"{name}: {value}" for name, value in reply.headers.items()]
        writer.write("\r\n".join([*head, "", ""]).encode())
        for piece in reply.pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if reply.ending == "stalled":
            self.reached.set()
            await reader.read()
            self.closed.set()
        elif reply.ending == "whole":
            writer.write(b"0\r\n\r\n")
            await writer.drain()


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(first.split(" ")[1], headers, json.loads(content))


AnyServer = TypeVar("AnyServer", bound=Server)


@asynccontextmanager
async def serving(server: AnyServer) -> AsyncIterator[AnyServer]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        await server.finish()
        await listening.wait_closed()
