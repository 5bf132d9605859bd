"""A server on this machine that answers by a script what the real APIs would answer.

It speaks HTTP/1.1 and the two forms of streams, as far as clients of these APIs need them.
"""

from __future__ import annotations

import asyncio
import re
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from eventctx.testing.script import Reply, Script, Step
from eventctx.testing.strict_provider.answering import (
    ApiAnswer,
    ApiRequest,
    Json,
    answer_bedrock,
    answer_claude,
    answer_gemini,
    count_tokens,
)
from eventctx.testing.strict_provider.checking import violations
from eventctx.testing.strict_provider.openai_answers import (
    answer_chat,
    answer_compact,
    answer_responses,
)
from eventctx.testing.strict_provider.rule import Api, Violation

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream; charset=utf-8"
_FRAMES: Final = "application/vnd.amazon.eventstream"
_LONGEST_HEAD: Final = 1 << 20

_ANSWER: Final[dict[str, Callable[[Reply, ApiRequest], ApiAnswer]]] = {
    "anthropic": answer_claude,
    "openai-chat": answer_chat,
    "openai-responses": answer_responses,
    "gemini": answer_gemini,
    "bedrock": answer_bedrock,
}
_ROUTES: Final[tuple[tuple[re.Pattern[str], Api], ...]] = (
    (re.compile(r"(?:/v1)?/messages(?P<count>/count_tokens)?\Z"), "anthropic"),
    (re.compile(r"(?:/v1)?/chat/completions\Z"), "openai-chat"),
    (re.compile(r"(?:/v1)?/responses(?P<compact>/compact)?\Z"), "openai-responses"),
    (
        re.compile(r"/v1(?:beta|alpha)?/models/(?P<model>[^/:]+):(?P<call>\w+)\Z"),
        "gemini",
    ),
    (re.compile(r"/model/(?P<model>[^/]+)/converse(?P<stream>-stream)?\Z"), "bedrock"),
)


class StrictServer:
    """A running server. ``url`` is its address; OpenAI's SDK wants ``/v1`` after it.

    ``requests`` are all requests in order, ``refusals`` the violations of each that was refused.
    """

    def __init__(self, answers: Sequence[Step] | Callable[[Any], Any], without: Collection[str]):
        self.url = ""
        self.requests: list[ApiRequest] = []
        self.refusals: list[tuple[Violation, ...]] = []
        self._repeat = answers if callable(answers) else None
        self._script = Script([] if callable(answers) else answers)
        self._without = frozenset(without)
        self._answered = 0
        self._failure: Exception | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def remaining(self) -> int:
        """Steps of the script that were not played yet."""
        return self._script.remaining

    def raise_failure(self) -> None:
        """Raise what was wrong with the script, such as one request too many."""
        if self._failure is not None:
            raise self._failure

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until the client closes it."""
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        try:
            while (request := await read_request(reader, writer)) is not None:
                await write_answer(writer, await self._answer(request))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # The client is gone, or the server is closed.
        finally:
            writer.close()

    async def close(self) -> None:
        """End the connections that are open."""
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _answer(self, sent: HttpRequest) -> HttpAnswer:
        request = _read(sent)
        if request is None:
            return _json(404, {"error": {"type": "not_found_error", "message": sent.target}})
        self.requests.append(request)
        broken = violations(request.api, request.checked, without=self._without)
        if broken:
            self.refusals.append(broken)
            return _refusal(request.api, broken[0])
        if request.counts:
            return _json(200, {"input_tokens": count_tokens(request.body)})
        self._answered += 1
        request = msgspec.structs.replace(request, number=self._answered)
        try:
            reply = await self._next(request)
            answer = answer_compact if request.compacts else _ANSWER[request.api]
            return _render(request, answer(reply, request))
        except Exception as error:
            status = getattr(error, "status", None)
            if not isinstance(status, int):
                status, self._failure = 500, self._failure or error
            problem = getattr(error, "problem", str(error))
            return _json(status, _error(request.api, status, "api_error", problem, None))

    async def _next(self, request: ApiRequest) -> Reply:
        script = self._script if self._repeat is None else Script([self._repeat])
        return await script.next(request)


@asynccontextmanager
async def strict_provider(
    answers: Sequence[Step] | Callable[[Any], Any], *, without: Collection[str] = ()
) -> AsyncIterator[StrictServer]:
    """A server on a free port of this machine, for the clients of every API that has rules here.

    ``answers`` is a script as of ``ScriptedProvider``: texts, ``Reply``, errors (with a ``status``
    they are answered), or functions of the ``ApiRequest``; or one such function for all requests.
    A request that breaks a rule gets the API's status and words, and no step. ``without`` names
    rules that are left out. At the end what was wrong with the script is raised.
    """
    server = StrictServer(answers, without)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=_LONGEST_HEAD)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        await server.close()
    server.raise_failure()


def _read(sent: HttpRequest) -> ApiRequest | None:
    address = urlsplit(sent.target)
    for pattern, api in _ROUTES:
        found = pattern.match(address.path)
        if found is None:
            continue
        try:
            body = msgspec.json.decode(sent.content)
        except msgspec.DecodeError:
            return None
        named = found.groupdict()
        streams = bool(body.get("stream"))
        if api == "bedrock":
            streams = named["stream"] is not None
        elif api == "gemini":
            streams = named["call"] == "streamGenerateContent"
        model = unquote(named.get("model") or str(body.get("model") or ""))
        counts = named.get("count") is not None
        compacts = named.get("compact") is not None
        return ApiRequest(
            api, sent.target, sent.headers, body, model, streams, counts, compacts=compacts
        )
    return None


def _render(request: ApiRequest, answer: ApiAnswer) -> HttpAnswer:
    if not request.streams:
        return _json(200, answer.body)
    encoded = [msgspec.json.encode(event) for event in answer.events]
    if request.api == "bedrock":
        frames = tuple(frame_of(event) for event in answer.events)
        return HttpAnswer(200, _FRAMES, frames, streams=True)
    if request.api == "gemini" and "alt=sse" not in request.path:
        return HttpAnswer(200, _JSON, (b"[" + b",".join(encoded) + b"]",), streams=True)
    if request.api in ("anthropic", "openai-responses"):
        names = [str(event["type"]) for event in answer.events]
        pieces = server_sent(zip(names, encoded, strict=True))
    elif request.api == "openai-chat":
        pieces = server_sent([*encoded, "[DONE]"])
    else:
        pieces = server_sent(encoded)
    return HttpAnswer(200, _EVENTS, pieces, streams=True)


def _refusal(api: Api, broken: Violation) -> HttpAnswer:
    status, kind = 400, "invalid_request_error"
    if broken.rule == "anthropic/request-size":
        status, kind = 413, "request_too_large"
    headers = {"x-amzn-errortype": "ValidationException"} if api == "bedrock" else {}
    return _json(status, _error(api, status, kind, broken.message, broken.path), headers)


def _error(api: Api, status: int, kind: str, message: str, path: str | None) -> Json:
    if api == "anthropic":
        error = {"type": kind, "message": message}
        return {"type": "error", "error": error, "request_id": "req_strict"}
    if api == "gemini":
        word = "INVALID_ARGUMENT" if status == 400 else "INTERNAL"
        return {"error": {"code": status, "message": message, "status": word}}
    if api == "bedrock":
        return {"message": message}
    return {"error": {"message": message, "type": kind, "param": path, "code": None}}


def _json(status: int, body: Json, headers: dict[str, str] | None = None) -> HttpAnswer:
    return HttpAnswer(status, _JSON, (msgspec.json.encode(body),), headers or {})


_STRING: Final = 7
"""The number of a header's type, a string, in the frames of an event stream."""


class HttpRequest(msgspec.Struct, frozen=True):
    """A request; names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    content: bytes


class HttpAnswer(msgspec.Struct, frozen=True):
    """An answer: one piece with its length, or several as they come."""

    status: int
    content_type: str
    pieces: tuple[bytes, ...]
    headers: Mapping[str, str] = {}
    streams: bool = False


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> HttpRequest | None:
    """The next request of a connection; None where the client has closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    named = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in named}
    method, target, _ = first.split(" ", 2)
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    if "chunked" in headers.get("transfer-encoding", "").lower():
        content = await _read_chunks(reader)
    else:
        content = await reader.readexactly(int(headers.get("content-length", "0")))
    return HttpRequest(method, target, headers, content)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    content = b""
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        content += (await reader.readexactly(size + 2))[:-2]
        if size == 0:
            return content


async def write_answer(writer: asyncio.StreamWriter, answer: HttpAnswer) -> None:
    """Send an answer; the connection stays open for the next request."""
    known = answer.status in HTTPStatus.__members__.values()
    phrase = HTTPStatus(answer.status).phrase if known else "Error"  # 529 is Anthropic's own
    head = [f"HTTP/1.1 {answer.status} {phrase}", f"content-type: {answer.content_type}"]
    head += [f"{name}: {value}" for name, value in answer.headers.items()]
    if answer.streams:
        writer.write("\r\n".join([*head, "transfer-encoding: chunked", "", ""]).encode())
        for piece in answer.pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
    else:
        content = b"".join(answer.pieces)
        length = f"content-length: {len(content)}"
        writer.write("\r\n".join([*head, length, "", ""]).encode() + content)
    await writer.drain()


def server_sent(events: Iterable[str | bytes | tuple[str, bytes]]) -> tuple[bytes, ...]:
    """Server-sent events; a pair is an event's name and its data."""
    pieces = []
    for event in events:
        name, data = event if isinstance(event, tuple) else ("", event)
        line = data.encode() if isinstance(data, str) else data
        begin = f"event: {name}\n".encode() if name else b""
        pieces.append(begin + b"data: " + line + b"\n\n")
    return tuple(pieces)


def frame_of(event: Mapping[str, Any]) -> bytes:
    """An event as a frame of ``application/vnd.amazon.eventstream``."""
    ((name, value),) = event.items()
    headers = b"".join(
        struct.pack(f">B{len(key)}sBH{len(text)}s", len(key), key, _STRING, len(text), text)
        for key, text in (
            (b":event-type", name.encode()),
            (b":content-type", b"application/json"),
            (b":message-type", b"event"),
        )
    )
    payload = msgspec.json.encode(value)
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    checked = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return checked + struct.pack(">I", zlib.crc32(checked))
