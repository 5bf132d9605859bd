"""The drills of docs/how-to/keep-sessions-in-postgresql.md, and stores of earlier versions.

What the servers' tools bring back is a store that goes on; what they do not, the receipts show.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.errors import StoreTooNew
from eventctx.log.store import ANY
from eventctx.search.postgres_index import PostgresTextIndex
from eventctx.stores.postgres.schema import SCHEMA_VERSION
from eventctx.stores.postgres.store import PostgresStore
from eventctx.testing.store_contract.drafts import check_chain, gather, make_draft
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
def server(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
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
async def test_a_dump_is_the_same_store_on_another_server(server: Server, tmp_path: Path) -> None:
    await talk(server.url("agents"), "Find a train.", "To Vienna.")
    server.execute("SELECT eventctx.make_roles()", database="agents")
    with Server(place=memory_folder()) as other:
        with server.connection() as busy:
            for _ in range(2000):  # so that the other server's transactions have lower numbers
                busy.execute("SELECT pg_current_xact_id()")
        await talk(server.url("agents"), "At nine.")
        _, last = await last_position(server.url("agents"))
        for program in ("pg_dump", "createdb", "pg_restore", "eventctx verify"):
            await asyncio.to_thread(drill, program, tmp_path, db=server, drill=other)
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
async def test_receipts_show_what_a_server_of_before_lacks(server: Server, tmp_path: Path) -> None:
    await talk(server.url("agents"), "Find a train.")
    await asyncio.to_thread(drill, "pg_basebackup", tmp_path, db=server)
    await talk(server.url("agents"), "To Vienna.", "At nine.")
    lost, position = await last_position(server.url("agents"))
    await asyncio.to_thread(server.kill)

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
    await other.append("child", [make_draft("five")], ANY)
    for stream in ("parent", "child"):
        check_chain(await gather(store.read(stream)))
    everything = [one async for one in store.read_all()]
    assert [one.stream for one in everything] == ["parent"] * 3 + ["child"] * 3
    places = [one.global_position for one in everything]
    assert places == sorted(places)
    await store.save_checkpoint("sink", 7)
    assert await other.load_checkpoint("sink") == 7
    index = PostgresTextIndex(store)
    assert index.mark() is None
    index.close()
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
