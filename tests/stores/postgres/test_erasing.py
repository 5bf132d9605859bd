"""What is erased or deleted leaves the server's files: the tests read the data folder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventctx.log.store import NO_STREAM, Address, Snapshot
from eventctx.stores.postgres import scrubbing
from eventctx.stores.postgres.connections import ServerConnection, parse_url
from eventctx.stores.postgres.store import PostgresStore
from tests.services.postgres_server import Server

SECRET = b"the-launch-code-is-0000"


@pytest.fixture(scope="module")
def server(postgres: Server) -> Iterator[Server]:
    """A server of its own, which forgets its log's old files instead of using them again."""
    with Server(settings={"wal_recycle": "off", "wal_init_zero": "off"}) as server:
        yield server


@pytest.fixture
async def store(server: Server, draft):
    opened = await PostgresStore.open(server.url(schema="erasing"))
    yield opened
    await opened.close()
    server.execute("DROP SCHEMA erasing CASCADE")


def files_with(server: Server, secret: bytes, *, wal: bool = False) -> list[Path]:
    """Files of the server that hold ``secret``, once all is in them."""
    server.execute("CHECKPOINT")
    if wal:
        server.execute("SELECT pg_switch_wal()")
        server.execute("CHECKPOINT")
        server.execute("CHECKPOINT")
    return [
        path
        for path in server.data.rglob("*")
        if path.is_file() and (wal or "pg_wal" not in path.parts) and secret in path.read_bytes()
    ]


async def fill(store, draft):
    """A secret in a first body, in a further one, in a large one, and in a snapshot."""
    noise = bytes(range(256)) * 40
    done = await store.append(
        "s",
        [
            draft(b"first " + SECRET),
            draft("other", b"further " + SECRET),
            draft(noise[:3000] + SECRET + noise),
            draft("stays"),
        ],
        NO_STREAM,
    )
    snapshot = Snapshot(3, done.receipt.digest, 1, b"folded " + SECRET)
    store.save_snapshot("s", "view", snapshot)
    await store.append("t", [draft("another session")], NO_STREAM)
    return done


async def test_erased_bodies_leave_the_files(server, store, draft, collect, chained):
    await fill(store, draft)
    assert files_with(server, SECRET)
    done = await store.erase(
        {"s": {Address(0): b"", Address(1, 1): b"", Address(2): b""}}, {"s": draft("note")}
    )
    assert done.bodies == 3
    assert await store.scrubbed()
    assert files_with(server, SECRET) == []
    records = await collect(store.read("s"))
    chained(records)
    assert [b.data for r in records for b in r.bodies] == [
        None, b"other", None, None, b"stays", b"note",
    ]  # fmt: skip


async def test_a_deleted_session_leaves_the_files_and_the_recycled_log(server, store, draft):
    await fill(store, draft)
    assert files_with(server, SECRET, wal=True)
    await store.delete("s", draft("gone"), 3)
    assert await store.scrubbed()
    assert files_with(server, SECRET) == []
    assert files_with(server, SECRET, wal=True) == []


async def test_a_plain_vacuum_would_not_be_enough(server, store, draft):
    await store.append("s", [draft("before"), draft(SECRET + bytes(600))], NO_STREAM)
    connection = ServerConnection(parse_url(server.url(schema="erasing")))
    connection.rows("UPDATE eventctx.records SET data = NULL, salt = NULL WHERE position = 1")
    connection.script("VACUUM erasing.records")
    connection.close()
    assert files_with(server, SECRET)


async def test_a_reader_of_an_older_state_keeps_the_bytes_and_the_store_says_so(
    server, store, draft, caplog
):
    await fill(store, draft)
    reader = ServerConnection(parse_url(server.url(schema="erasing")))
    with reader.transaction():
        reader.script("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.rows("SELECT count(*) FROM eventctx.checkpoints")
        await store.erase({"s": {Address(0): b"", Address(1, 1): b"", Address(2): b""}})
        assert not await store.scrubbed()
        assert files_with(server, SECRET)
        assert "VACUUM FULL erasing.bodies" in caplog.text
    reader.close()
    again = await PostgresStore.open(server.url(schema="erasing"))
    await again.append("u", [draft()], NO_STREAM)  # the next opener has finished it by now
    assert await again.scrubbed()
    assert files_with(server, SECRET) == []
    await again.close()


async def test_a_large_table_is_left_to_the_people_who_look_after_the_server(
    server, store, draft, monkeypatch
):
    monkeypatch.setattr(scrubbing, "MOST_BYTES", 1000)
    await fill(store, draft)
    await store.erase({"s": {Address(0): b"", Address(1, 1): b"", Address(2): b""}})
    assert not await store.scrubbed()
    for table in ("records", "bodies", "snapshots"):
        assert not await store.scrubbed()
        await asyncio.to_thread(server.execute, f"VACUUM FULL erasing.{table}")
    assert await store.scrubbed()
    assert files_with(server, SECRET) == []
