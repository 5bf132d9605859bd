"""A call through the relay of ``eventctx record``, beside the same call without it.

A server answers 240 kB, as Claude Code sends them, with a stream of tokens. What is timed is how
long a program waits for the first byte of the answer, and how late each token is: asked directly,
through a pump that passes bytes on and does nothing else, and through the relay, in turns; tokens
of four calls at once. Server, pump and relay are processes of their own, and the relay writes
tapes. What a busy machine does to a token shows in the pump's figures.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from asyncio.subprocess import Process
from pathlib import Path
from time import perf_counter

from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import Samples

FIGURE = "a call through the relay"
FIRST_BYTE, TOKEN = 5.0, 2.0
"""Milliseconds that the relay may add to the first byte of an answer, and to a token."""

_TOKENS = 40
_AT_ONCE = 4
_BODY = json.dumps(
    {
        "model": "m",
        "max_tokens": 9,
        "stream": True,
        "tools": [{"name": "Read", "description": "x" * 48_000}],
        "messages": [{"role": "user", "content": f"{n}" + "x" * 4_000} for n in range(48)],
    }
).encode()
_PATHS = {
    "direct": "/v1/messages",
    "pump": "/v1/messages",
    "relay": "/anthropic/v1/messages",
}


async def measure(place: Place) -> list[Row]:
    try:
        import eventctx.proxy.relay  # noqa: F401 - so that its absence is a missing row
    except ImportError as error:
        return [missing(FIGURE, "first byte", str(error))]
    server, direct = await _started("server", 0)
    others = [await _started(name, direct) for name in ("pump", "relay")]
    ports = {"direct": direct, "pump": others[0][1], "relay": others[1][1]}
    samples, together = Samples(), Samples()
    try:
        for _ in range(place.count(40, 2)):
            for name, port in ports.items():
                await _ask(samples, name, port, _PATHS[name])
            for name, port in ports.items():
                calls = [_ask(together, name, port, _PATHS[name]) for _ in range(_AT_ONCE)]
                await asyncio.gather(*calls)
    finally:
        for process, _ in (*others, (server, 0)):
            process.stdin.close()  # type: ignore[union-attr]
            await process.wait()
    return [*_medians(samples), *_tail(together)]


def _medians(samples: Samples) -> list[Row]:
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


def _tail(samples: Samples) -> list[Row]:
    relay, pump = (sorted(samples.by_name[f"{name} token"]) for name in ("relay", "pump"))
    late = [100 * sum(one * 1e3 > TOKEN for one in some) / len(some) for some in (relay, pump)]
    figures = [(f"tokens later than {TOKEN:.0f} ms", "%", *late)]
    for name, share in (("99 %", 0.99), ("99.9 %", 0.999)):
        at = [some[int(len(some) * share)] * 1e3 for some in (relay, pump)]
        figures.append((f"token, {name} of them", "ms", *at))
    figures.append(("token, the latest", "ms", relay[-1] * 1e3, pump[-1] * 1e3))
    return [
        Row(figure=FIGURE, name=name, unit=unit, value=value, against="a byte pump", floor=floor)
        for name, unit, value, floor in figures
    ]


async def _started(role: str, port: int) -> tuple[Process, int]:
    """A process of this module, and the port on which it listens."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.benchmarks.relaying", role, str(port)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    return process, int(await process.stdout.readline())


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


# -- the processes -------------------------------------------------------------------------------


async def _server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(len(_BODY))
    head = b"content-type: text/event-stream\r\nconnection: close\r\n\r\n"
    writer.write(b"HTTP/1.1 200 OK\r\n" + head)
    for _ in range(_TOKENS):
        event = {"type": "content_block_delta", "index": 0, "at": perf_counter()}
        writer.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        await writer.drain()
        await asyncio.sleep(0.004)
    writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65_536):
        writer.write(piece)
        await writer.drain()
    writer.close()


async def _until_told() -> None:
    await asyncio.to_thread(sys.stdin.buffer.read)


async def _run(role: str, port: int) -> None:
    if role == "relay":
        await _relay(port)
        return

    async def pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_pump(reader, up_writer), _pump(up_reader, writer))

    listening = await asyncio.start_server(
        _server if role == "server" else pumped, "127.0.0.1", 0, limit=2**20
    )
    print(listening.sockets[0].getsockname()[1], flush=True)
    await _until_told()


async def _relay(port: int) -> None:
    from eventctx.proxy.program import Upstreams
    from eventctx.proxy.relay import Relay
    from eventctx.proxy.tape_process import TapeProcess

    upstreams = Upstreams.of({"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"})
    with tempfile.TemporaryDirectory() as folder:
        tapes = TapeProcess(Path(folder), "run")
        relay = Relay(upstreams.choose(), tapes.put)
        await relay.start()
        print(relay.port, flush=True)
        await _until_told()
        await relay.close()
        await asyncio.to_thread(tapes.close)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], int(sys.argv[2])))
