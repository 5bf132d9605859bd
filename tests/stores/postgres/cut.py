"""A way to the server that can be cut behind the answer to a commit, before the client hears it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress


class Cut:
    """Forwards connections to a server; the answer that holds ``until`` is lost, with its way."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.port = 0
        self.until: bytes | None = None
        self.cuts = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._to)

        async def forward(source, target, *, answers):
            with suppress(ConnectionError, asyncio.CancelledError):
                while data := await source.read(65536):
                    if answers and self.until is not None and self.until in data:
                        self.until = None
                        self.cuts += 1
                        break
                    target.write(data)
                    await target.drain()
            for one in (writer, server_writer):
                one.close()

        await asyncio.gather(
            forward(reader, server_writer, answers=False),
            forward(server_reader, writer, answers=True),
        )


@asynccontextmanager
async def cut_in_front_of(port: int):
    """A ``Cut`` in front of the server at ``port``; its own port is ``cut.port``."""
    cut = Cut(port)
    server = await asyncio.start_server(cut.serve, "127.0.0.1", 0)
    cut.port = server.sockets[0].getsockname()[1]
    try:
        yield cut
    finally:
        server.close()
