"""The server's files: what is erased leaves them, and damage in them is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventctx.errors import LogCorrupted
from eventctx.log.store import ANY, NO_STREAM, Address, Snapshot
from eventctx.stores.postgres import scrubbing
from eventctx.stores.postgres.connections import ServerConnection, in_schema, parse_url
from eventctx.stores.postgres.store import PostgresStore
from eventctx.testing.store_contract.drafts import check_chain, gather
from eventctx.testing.store_contract.drafts import make_draft as draft
from tests.services.in_memory import memory_folder
from tests.services.postgres_server import Server

SECRET = b"the-launch-code-is-0000"


@pytest.fixture(scope="module")
def server(postgres: Server) -> Iterator[Server]:
    """A server of its own, which forgets its log's old files instead of using them again."""
    settings = {"wal_recycle": "off", "wal_init_zero": "off"}
    with Server(settings=settings, place=memory_folder()) as server:
        yield server


@pytest.fixture
async def erasing(server: Server):
    """A store with a secret in a first body, in a further one, in a large one, in a snapshot."""
    opened = await PostgresStore.open(server.url(schema="erasing"))
    noise = bytes(range(256)) * 40
    drafts = [
        draft(b"first " + SECRET),
        draft("other", b"further " + SECRET),
        draft(noise[:3000] + SECRET + noise),
        draft("stays"),
    ]
    done = await opened.append("s", drafts, NO_STREAM)
    snapshot = Snapshot(3, done.receipt.digest, 1, b"folded " + SECRET)
    opened.save_snapshot("s", "view", snapshot)
    await opened.append("t", [draft("another session")], NO_STREAM)
    yield opened
    await opened.close()
    server.execute("DROP SCHEMA erasing CASCADE")


SECRETS = {"s": {Address(0): b"", Address(1, 1): b"", Address(2): b""}}


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


async def test_erased_bodies_leave_the_files(server, erasing):
    store = erasing
    assert files_with(server, SECRET)
    assert (await store.erase(SECRETS, {"s": draft("note")})).bodies == 3
    assert await store.scrubbed()
    assert files_with(server, SECRET) == []
    records = await gather(store.read("s"))
    check_chain(records)
    assert [b.data for r in records for b in r.bodies] == [
        None, b"other", None, None, b"stays", b"note",
    ]  # fmt: skip


async def test_a_deleted_session_leaves_the_files_and_the_recycled_log(server, erasing):
    assert files_with(server, SECRET, wal=True)
    await erasing.delete("s", draft("gone"), 3)
    assert await erasing.scrubbed()
    assert files_with(server, SECRET) == []
    assert files_with(server, SECRET, wal=True) == []


async def test_a_plain_vacuum_would_not_be_enough(server, erasing):
    await erasing.append("v", [draft("before"), draft(b"no " + SECRET + bytes(600))], NO_STREAM)
    connection = ServerConnection(parse_url(server.url(schema="erasing")))
    connection.rows("UPDATE eventctx.records SET data = NULL, salt = NULL WHERE position = 1")
    connection.script("VACUUM erasing.records")
    connection.close()
    assert files_with(server, b"no " + SECRET)


async def test_a_reader_of_an_older_state_keeps_the_bytes_and_we_say_so(server, erasing, caplog):
    reader = ServerConnection(parse_url(server.url(schema="erasing")))
    with reader.transaction():
        reader.script("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.rows("SELECT count(*) FROM eventctx.checkpoints")
        await erasing.erase(SECRETS)
        assert not await erasing.scrubbed()
        assert files_with(server, SECRET)
        assert "VACUUM FULL erasing.bodies" in caplog.text
    reader.close()
    again = await PostgresStore.open(server.url(schema="erasing"))
    await again.append("u", [draft()], NO_STREAM)  # the next opener has finished it by now
    assert await again.scrubbed()
    assert files_with(server, SECRET) == []
    await again.close()


async def test_a_large_table_is_left_to_who_looks_after_the_server(server, erasing, monkeypatch):
    store = erasing
    monkeypatch.setattr(scrubbing, "MOST_BYTES", 1000)
    await store.erase(SECRETS)
    for table in ("records", "bodies", "snapshots"):
        assert not await store.scrubbed()
        await asyncio.to_thread(server.execute, f"VACUUM FULL erasing.{table}")
    assert await store.scrubbed()
    assert files_with(server, SECRET) == []


def ruin(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:200] + bytes(byte ^ 0x55 for byte in whole[200:8000]) + whole[8000:])


@pytest.mark.parametrize("damage", ["a page", "a file"])
async def test_damage_in_the_servers_files_names_the_session_that_was_asked_for(damage) -> None:
    with Server(place=memory_folder()) as server:
        store = await PostgresStore.open(server.url())
        await store.append("agent 7", [draft("a"), draft("b")], NO_STREAM)
        ((file,),) = server.execute("SELECT pg_relation_filepath('eventctx.records')")
        server.stop()
        ruin(server.data / file) if damage == "a page" else (server.data / file).unlink()
        server.start()
        said = r"^stream 'agent 7': the server finds"
        for use in (
            lambda: gather(store.read("agent 7")),
            lambda: store.bodies("agent 7", [Address(0)]),
            lambda: store.append("agent 7", [draft()], ANY),
        ):
            with pytest.raises(LogCorrupted, match=said) as raised:
                await use()
            assert raised.value.stream == "agent 7"
            assert str(raised.value).endswith("`eventctx verify agent 7` lists all damage")
        with pytest.raises(LogCorrupted, match=r"^the log: the server finds .* `eventctx verify`"):
            await gather(store.read_all())
        await store.close()


FOREIGN = """
CREATE FUNCTION eventctx.meddle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER meddling BEFORE INSERT ON eventctx.records
  FOR EACH ROW EXECUTE FUNCTION eventctx.meddle()
"""


@pytest.mark.parametrize(
    ("sql", "finding", "missing"),
    [
        ("DELETE FROM eventctx.records WHERE position = 1", None, 1),
        ("DELETE FROM eventctx.records", "1 sessions have lost all their records", 0),
        ("DELETE FROM eventctx.streams", "3 records belong to no session", 0),
        ("DELETE FROM eventctx.types", "3 records have a type whose name was removed", 0),
        ("UPDATE eventctx.bodies SET pos = 5", "1 contents belong to no record", 0),
        ("ALTER TABLE eventctx.records DROP CONSTRAINT records_place", "'records_place' was", 0),
        (FOREIGN, "the trigger 'meddling' to the table 'records'", 0),
        ("CREATE RULE quiet AS ON INSERT TO eventctx.types DO INSTEAD NOTHING", "'quiet'", 0),
    ],
)
async def test_a_foreign_hand_is_noticed(store, postgres_place, sql, finding, missing):
    await store.append("s", [draft("a"), draft("b", "c"), draft()], NO_STREAM)
    connection = ServerConnection(parse_url(postgres_place))
    connection.script(in_schema(sql, connection.schema))
    connection.close()
    found = await store.inspect()
    assert found.missing == missing
    if finding is not None:
        assert any(finding in one for one in found.findings), found.findings
