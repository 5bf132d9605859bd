"""The server stored it, and its answer was lost: what was done is found by its ids, not done twice.

The way to the server is cut after the answer to the commit, so every test knows that it is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from eventctx.log.store import ANY, NO_STREAM, Address
from eventctx.stores.postgres.store import PostgresStore
from tests.services.postgres_server import Server

ONE_RECORD = b"INSERT 0 1\0"
NEW_STREAM = b"SELECT 2\0"
TWO_RECORDS = b"SELECT 1\0"
TRANSACTION = b"COMMIT\0"


@pytest.fixture
async def cut(postgres: Server) -> AsyncIterator[Cut]:
    async with cut_in_front_of(postgres.port) as cut:
        yield cut


@pytest.fixture
async def store(postgres: Server, postgres_place: str, cut: Cut, draft):
    """A store behind the cut, which knows the type of the drafts and the stream ``s``."""
    place = postgres_place.replace(f":{postgres.port}/", f":{cut.port}/")
    opened = await PostgresStore.open(place)
    await opened.append("s", [draft("a")], NO_STREAM)
    yield opened
    assert cut.cuts == 1, "nothing was cut off"
    await opened.close()


@pytest.mark.parametrize("expected", [0, ANY])
async def test_a_record(store, cut, draft, collect, chained, expected):
    cut.until = ONE_RECORD
    done = await store.append("s", [draft("b")], expected)
    assert done.receipt.position == 1
    records = await collect(store.read("s"))
    assert tuple(records[1:]) == done.records
    chained(records)


async def test_records_in_one_append(store, cut, draft, collect, chained):
    cut.until = TWO_RECORDS
    done = await store.append("s", [draft("b"), draft("c", "d")], 0)
    records = await collect(store.read("s"))
    assert tuple(records[1:]) == done.records
    chained(records)


async def test_a_record_that_expects_no_version_and_another_writer_was_next(
    store, cut, draft, collect, chained, postgres_place
):
    other = await PostgresStore.open(postgres_place)
    cut.until = ONE_RECORD
    mine = store.append("s", [draft("mine")], ANY)
    # Between the cut and the retry, the other one's record comes after mine.
    while (await other.head("s")).head == 0:
        pass
    theirs = await other.append("s", [draft("theirs")], ANY)
    done = await mine
    assert (done.receipt.position, theirs.receipt.position) == (1, 2)
    records = await collect(store.read("s"))
    assert len(records) == 3
    chained(records)
    await other.close()


@pytest.mark.parametrize("expected", [NO_STREAM, ANY])
async def test_the_first_record_of_a_stream(store, cut, draft, collect, chained, expected):
    cut.until = NEW_STREAM
    done = await store.append("new", [draft("a")], expected)
    assert tuple(await collect(store.read("new"))) == done.records


async def test_a_fork(store, cut, draft, collect):
    cut.until = TRANSACTION
    done = await store.fork("s", 0, "f", draft("mine"))
    assert (await collect(store.read("f")))[1:] == list(done.records)


async def test_an_erasure_with_its_records(store, cut, draft, collect, chained):
    cut.until = TRANSACTION
    done = await store.erase({"s": {Address(0): b""}}, {"s": draft("note")})
    assert (done.bodies, len(done.records)) == (1, 1)
    records = await collect(store.read("s"))
    assert len(records) == 2
    assert records[0].bodies[0].erased
    chained(records)
    assert await store.scrubbed()


async def test_a_deletion(store, cut, draft, collect):
    cut.until = TRANSACTION
    last = draft("gone")
    record = await store.delete("s", last, 0)
    assert await collect(store.read("s")) == [record]
    assert await store.scrubbed()


async def test_a_checkpoint(store, cut):
    cut.until = ONE_RECORD
    await store.save_checkpoint("log", 5)
    assert await store.load_checkpoint("log") == 5


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
