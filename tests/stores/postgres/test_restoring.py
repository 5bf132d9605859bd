"""The drills of docs/how-to/keep-sessions-in-postgresql.md, stores of earlier versions, files.

What the servers' tools bring back is a store that goes on; what they do not, the receipts show.
What is erased leaves the server's files, and damage in them is told.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.errors import LogCorrupted, StoreTooNew
from eventctx.log.store import ANY, NO_STREAM, Address, Snapshot
from eventctx.search.postgres_index import PostgresTextIndex
from eventctx.stores.postgres import scrubbing
from eventctx.stores.postgres.connections import ServerConnection, in_schema, parse_url
from eventctx.stores.postgres.schema import SCHEMA_VERSION
from eventctx.stores.postgres.store import PostgresStore
from eventctx.testing.store_contract.drafts import check_chain, gather
from eventctx.testing.store_contract.drafts import make_draft as draft
from tests.pages import blocks_of
from tests.services.in_memory import memory_folder
from tests.services.postgres_server import Server
from tests.test_docs import DOCS

PAGE = DOCS / "how-to" / "keep-sessions-in-postgresql.md"
DAMAGE = 5


def drill(program: str, folder: Path, *, code: int = 0, **hosts: Server) -> str:
    """Run the page's one command that begins with ``program``; what ``eventctx`` printed."""
    lines = [line for block in blocks_of(PAGE) for line in block.text.splitlines()]
    (line,) = [line[2:] for line in lines if line.startswith(f"$ {program} ")]
    for name, server in hosts.items():
        line = line.replace(f"{name}.example", f"127.0.0.1:{server.port}")
    assert ".example" not in line
    words = line.split()
    if words[0] == "eventctx":
        done = CliRunner().invoke(cli, words[1:])
        assert done.exit_code == code, done.output
        return done.output
    words[0] = str(next(iter(hosts.values())).binaries.folder / words[0])
    ran = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True)
    assert ran.returncode == code, ran.stderr
    return ""


@pytest.fixture
def primary(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with the database of the page."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Server(place=memory_folder()) as own:
        own.execute("CREATE DATABASE agents")
        yield own


async def talk(url: str, *texts: str) -> None:
    async with eventctx.open(url) as engine:
        context = await engine.session("trip")
        for text in texts:
            await context.add_message({"role": "user", "content": text})


async def last_position(url: str) -> tuple[str, int]:
    store = await PostgresStore.open(url)
    records = await gather(store.read_all())
    await store.close()
    return records[-1].id, records[-1].global_position


@pytest.mark.slow
async def test_a_dump_is_the_same_store_on_another_server(primary: Server, tmp_path: Path) -> None:
    await talk(primary.url("agents"), "Find a train.", "To Vienna.")
    primary.execute("SELECT eventctx.make_roles()", database="agents")
    with Server(place=memory_folder()) as other:
        with primary.connection() as busy:
            for _ in range(2000):  # so that the other server's transactions have lower numbers
                busy.execute("SELECT pg_current_xact_id()")
        await talk(primary.url("agents"), "At nine.")
        _, last = await last_position(primary.url("agents"))
        for program in ("pg_dump", "createdb", "pg_restore", "eventctx verify"):
            await asyncio.to_thread(drill, program, tmp_path, db=primary, drill=other)
        assert len(list((tmp_path / "state").rglob("receipts/*.jsonl"))) == 1  # of both servers

        restored = await PostgresStore.open(other.url("agents"))  # the first that may write
        offset = "SELECT value::bigint FROM eventctx.meta WHERE key = 'xid_offset'"
        assert other.execute(offset, database="agents") > [(0,)]
        news = restored.subscribe(after=last)
        coming = asyncio.ensure_future(anext(news))
        await talk(other.url("agents"), "By day.")
        found = await asyncio.wait_for(coming, 60)
        assert found.stream == "trip"
        assert found.global_position > last
        await news.aclose()
        await restored.close()
        await asyncio.to_thread(drill, "eventctx verify", tmp_path, drill=other)


@pytest.mark.slow
async def test_receipts_show_what_a_server_of_before_lacks(primary: Server, tmp_path: Path) -> None:
    await talk(primary.url("agents"), "Find a train.")
    await asyncio.to_thread(drill, "pg_basebackup", tmp_path, db=primary)
    await talk(primary.url("agents"), "To Vienna.", "At nine.")
    lost, position = await last_position(primary.url("agents"))
    await asyncio.to_thread(primary.kill)

    earlier = Server(place=memory_folder())
    shutil.move(tmp_path / "monday", earlier.data)
    earlier.binaries.give(earlier.folder)
    earlier.configure()
    with earlier:
        verify = partial(asyncio.to_thread, drill, "eventctx verify", tmp_path, drill=earlier)
        said = await verify(code=DAMAGE)
        (book,) = (tmp_path / "state").rglob("receipts/*.jsonl")
        assert "trip" in said and str(book) in said
        book.rename(tmp_path / "put-away.jsonl")
        await verify()
        await talk(earlier.url("agents"), "To Graz.")
        found, again = await last_position(earlier.url("agents"))
        assert found != lost
        assert again <= position  # why followers have to be set back
        await verify()


FROZEN = Path(__file__).parents[2] / "golden" / "postgres"


def test_every_version_is_frozen() -> None:
    expected = {f"version-{number}.sql" for number in range(1, SCHEMA_VERSION + 1)}
    assert {one.name for one in FROZEN.glob("*.sql")} == expected


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
async def test_a_store_of_an_earlier_version_opens_with_its_records_and_takes_more(
    postgres_url: str, version: int
) -> None:
    url = postgres_url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((FROZEN / f"version-{version}.sql").read_bytes())
    # Two processes of a new release may start at once.
    store, other = await asyncio.gather(PostgresStore.open(url), PostgresStore.open(url))
    parent, child = await gather(store.read("parent")), await gather(store.read("child"))
    assert [len(one.bodies) for one in parent] == [0, 1, 2]
    assert [bytes(body.data) for body in parent[2].bodies] == [b"two", b"three"]
    assert [one.position for one in child] == [0, 1, 2, 3]
    await other.append("child", [draft("five")], ANY)
    for stream in ("parent", "child"):
        check_chain(await gather(store.read(stream)))
    everything = [one async for one in store.read_all()]
    assert [one.stream for one in everything] == ["parent"] * 3 + ["child"] * 3
    places = [one.global_position for one in everything]
    assert places == sorted(places)
    await store.save_checkpoint("sink", 7)
    assert await other.load_checkpoint("sink") == 7
    with closing(PostgresTextIndex(store)) as index:
        assert index.mark() is None
    assert (await store.inspect()).findings == ()
    await store.close()
    await other.close()


async def test_a_store_of_a_later_release_is_refused(
    store: PostgresStore, postgres_place: str, postgres: Server
) -> None:
    schema = store.destination.schema
    postgres.execute(f"UPDATE {schema}.meta SET value = '999' WHERE key = 'schema_version'")  # noqa: S608
    with pytest.raises(StoreTooNew, match="found 999"):
        await PostgresStore.open(postgres_place)


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
    opened.save_snapshot("s", "view", Snapshot(3, done.receipt.digest, 1, b"folded " + SECRET))
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
    assert files_with(server, SECRET)
    assert (await erasing.erase(SECRETS, {"s": draft("note")})).bodies == 3
    assert await erasing.scrubbed()
    assert files_with(server, SECRET) == []
    records = await gather(erasing.read("s"))
    check_chain(records)
    left = [body.data for record in records for body in record.bodies]
    assert left == [None, b"other", None, None, b"stays", b"note"]


async def test_a_deleted_session_leaves_the_files_and_the_recycled_log(server, erasing):
    assert files_with(server, SECRET, wal=True)
    await erasing.delete("s", draft("gone"), 3)
    assert await erasing.scrubbed()
    assert files_with(server, SECRET) == []
    assert files_with(server, SECRET, wal=True) == []


async def test_a_plain_vacuum_would_not_be_enough(server, erasing):
    await erasing.append("v", [draft("before"), draft(b"no " + SECRET + bytes(600))], NO_STREAM)
    with closing(ServerConnection(parse_url(server.url(schema="erasing")))) as connection:
        connection.rows("UPDATE eventctx.records SET data = NULL, salt = NULL WHERE position = 1")
        connection.script("VACUUM erasing.records")
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
    monkeypatch.setattr(scrubbing, "MOST_BYTES", 1000)
    await erasing.erase(SECRETS)
    for table in ("records", "bodies", "snapshots"):
        assert not await erasing.scrubbed()
        await asyncio.to_thread(server.execute, f"VACUUM FULL erasing.{table}")
    assert await erasing.scrubbed()
    assert files_with(server, SECRET) == []


def ruin(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:200] + bytes(byte ^ 0x55 for byte in whole[200:8000]) + whole[8000:])


@pytest.mark.parametrize("damage", [ruin, Path.unlink])
async def test_damage_in_the_servers_files_names_the_session_that_was_asked_for(damage) -> None:
    with Server(place=memory_folder()) as server:
        store = await PostgresStore.open(server.url())
        await store.append("agent 7", [draft("a"), draft("b")], NO_STREAM)
        ((file,),) = server.execute("SELECT pg_relation_filepath('eventctx.records')")
        server.stop()
        damage(server.data / file)
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
    with closing(ServerConnection(parse_url(postgres_place))) as connection:
        connection.script(in_schema(sql, connection.schema))
    found = await store.inspect()
    assert found.missing == missing
    if finding is not None:
        assert any(finding in one for one in found.findings), found.findings
