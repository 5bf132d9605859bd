"""HTTP/1.1 and the two forms of its streams, as far as clients of models' APIs need them."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

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
