"""A call through the relay of ``eventctx record``, beside the same call without it.

A server on this machine answers 90 kB, as Claude Code sends them, with a stream of tokens. What is
timed is how long a program waits for the first byte of the answer, and how late each token is, with
and without the relay between them; the tape is written meanwhile. Server, relay and program share
one loop here, which is slower than three processes.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from time import perf_counter

from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import Samples

FIGURE = "a call through the relay"
FIRST_BYTE, TOKEN = 5.0, 2.0
"""Milliseconds that the relay may add to the first byte of an answer, and to a token."""

_TOKENS = 20
_BODY = json.dumps(
    {
        "model": "m",
        "max_tokens": 9,
        "stream": True,
        "tools": [{"name": "Read", "description": "x" * 48_000}],
        "messages": [{"role": "user", "content": "x" * 40_000}],
    }
).encode()


async def measure(place: Place) -> list[Row]:
    try:
        from eventctx.proxy.program import Upstreams
        from eventctx.proxy.relay import Relay
        from eventctx.proxy.tapes import Tapes
    except ImportError as error:
        return [missing(FIGURE, "first byte", str(error))]
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    direct = server.sockets[0].getsockname()[1]
    upstreams = Upstreams.of({"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{direct}"})
    tapes = Tapes(Path(place.path("tapes")), "run", print)
    relay = Relay(upstreams.choose(), tapes.put)
    await relay.start()
    samples = Samples()
    try:
        for _ in range(place.count(60, 4)):
            await _ask(samples, "direct", direct, "/v1/messages")
            await _ask(samples, "relay", relay.port, "/anthropic/v1/messages")
    finally:
        await relay.close()
        await asyncio.to_thread(tapes.close)
        server.close()
    return [
        Row(
            figure=FIGURE,
            name=name,
            value=samples.milli(f"relay {name}") - samples.milli(f"direct {name}"),
            unit="ms",
            limit=limit,
            note=f"without it {samples.milli(f'direct {name}'):.2f} ms",
        )
        for name, limit in (("first byte", FIRST_BYTE), ("token", TOKEN))
    ]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(len(_BODY))
    head = b"content-type: text/event-stream\r\nconnection: close\r\n\r\n"
    writer.write(b"HTTP/1.1 200 OK\r\n" + head)
    for _ in range(_TOKENS):
        event = {"type": "content_block_delta", "index": 0, "at": perf_counter()}
        writer.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        await writer.drain()
        await asyncio.sleep(0.002)
    writer.close()


async def _ask(samples: Samples, name: str, port: int, path: str) -> None:
    began = perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(_BODY)}\r\n\r\n"
    writer.write(head.encode() + _BODY)
    await reader.readexactly(1)
    samples.add(f"{name} first byte", perf_counter() - began)
    while line := await reader.readline():
        if line.startswith(b"data: "):
            sent = json.loads(line.removeprefix(b"data: "))["at"]
            samples.add(f"{name} token", perf_counter() - sent)
    writer.close()
