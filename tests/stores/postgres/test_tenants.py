"""Tenants and roles: the rows that each may read, write and erase, as the page sets them up."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
import yaml

import eventctx
from eventctx.errors import StoreReadOnly, StreamExists, StreamNotFound
from eventctx.log.store import ANY, NO_STREAM, Address
from eventctx.search.postgres_index import PostgresTextIndex
from eventctx.search.recall import Recall
from eventctx.stores.postgres.durability import standbys_needed
from eventctx.stores.postgres.store import PostgresStore
from eventctx.stores.receipt_book import ReceiptBook
from eventctx.testing.store_contract.drafts import make_draft
from tests.faults.servers import patroni
from tests.pages import blocks_of
from tests.services.in_memory import memory_folder
from tests.services.postgres_server import Server
from tests.stores.test_sqlite_recall import added
from tests.test_docs import DOCS

LOGINS = {
    "ann": ("alpha", "eventctx_writer"),
    "amy": ("alpha", "eventctx_writer"),
    "watcher": ("alpha", "eventctx_reader"),
    "cleaner": ("alpha", "eventctx_eraser"),
    "bob": ("beta", "eventctx_writer"),
}
"""Users, each with its tenant and what it may do."""

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of these tests, because roles are those of all its databases."""
    with Server(place=memory_folder()) as own:
        asyncio.run(made(own.url()))
        own.execute("SELECT eventctx.make_roles()")
        own.execute("CREATE ROLE alpha")
        own.execute("CREATE ROLE beta")
        for user, (tenant, kind) in LOGINS.items():
            own.execute(f"CREATE ROLE {user} LOGIN IN ROLE {tenant}, {kind}")
            own.execute(f"ALTER ROLE {user} SET eventctx_store.tenant = '{tenant}'")
        own.execute("CREATE ROLE hand LOGIN IN ROLE alpha, eventctx_writer")
        own.execute("GRANT UPDATE (salt, data, facts) ON eventctx.records TO hand")
        own.execute("CREATE ROLE alone LOGIN IN ROLE eventctx_writer")
        yield own


async def made(url: str) -> None:
    await (await PostgresStore.open(url)).close()


@pytest.fixture
async def opened(server: Server) -> AsyncIterator[Open]:
    """Opens the store as a role; every test has the tables empty."""
    server.execute(
        "TRUNCATE eventctx.streams, eventctx.records, eventctx.bodies, eventctx.snapshots, "
        "eventctx.checkpoints, eventctx.recall_marks, eventctx.recall_messages, "
        "eventctx.recall_pieces"
    )
    async with AsyncExitStack() as ending:

        async def open_as(user: str, **options: Any) -> PostgresStore:
            store = await PostgresStore.open(server.url(user=user), create=False, **options)
            ending.push_async_callback(store.close)
            return store

        yield open_as


async def names(store: PostgresStore) -> list[str]:
    return [info.stream async for info in store.streams()]


async def test_a_tenant_lists_reads_and_follows_its_own_sessions_alone(opened: Open) -> None:
    alpha, beta, owner = await opened("ann"), await opened("bob"), await opened("postgres")
    await added(alpha, "a", "one", "two")
    await added(beta, "b", "three")
    assert (await names(alpha), await names(beta)) == (["a"], ["b"])
    assert await names(owner) == ["a", "b"]
    assert [r.stream async for r in alpha.read_all()] == ["a", "a"]
    assert await beta.head("a") is None
    for question in (beta.read("a").__anext__(), beta.bodies("a", [Address(0)]), beta.forks("a")):
        with pytest.raises(StreamNotFound):
            await question
    heard = beta.subscribe()
    assert (await heard.__anext__()).stream == "b"
    await added(alpha, "a", "four")
    await added(beta, "b", "five")
    following = await asyncio.wait_for(heard.__anext__(), 60)
    assert (following.stream, following.position) == ("b", 1)
    await heard.aclose()
    assert (await alpha.inspect()).findings == ()
    for number, store in enumerate((alpha, beta)):
        await store.save_checkpoint("sink", number)
    assert [await one.load_checkpoint("sink") for one in (alpha, beta, owner)] == [0, 1, None]


async def test_tenants_on_one_machine_do_not_see_each_others_names_in_the_book_of_receipts(
    server: Server, opened: Open
) -> None:
    async def written(user: str, session: str) -> tuple[set[str], set[str]]:
        async with eventctx.open(server.url(user=user)) as engine:
            context = await engine.session(session)
            async with context.turn():
                await context.add_message({"role": "user", "content": "hello"})
            checked = await engine.verify_store()
            assert checked.ok
            path = engine.receipts_path
        book = ReceiptBook(path).entries()
        return {one.stream for one in checked.sessions}, {one.session for one in book}

    assert await written("ann", "a") == ({"a"}, {"a"})
    assert await written("bob", "b") == ({"b"}, {"b"})
    assert await written("amy", "c") == ({"a", "c"}, {"a", "c"})
    owner, alpha = await opened("postgres"), await opened("ann")
    assert owner.cache_path.name == f"postgresql-{owner._opened.store_id}"
    assert alpha.cache_path != owner.cache_path


async def test_a_tenant_finds_words_of_its_own_sessions_alone(opened: Open) -> None:
    alpha, beta = await opened("ann"), await opened("bob")
    await added(alpha, "a", "shared secret", "w " * 20_000 + "secret")
    await added(beta, "b", "shared hello")
    for store, wanted in ((alpha, ["a"]), (beta, ["b"])):
        recall = Recall(store, PostgresTextIndex(store))
        assert [one.session for one in await recall.search("shared")] == wanted
        assert len(await recall.search("secret")) == (2 if store is alpha else 0)
        await recall.close()


async def test_what_is_another_tenants_is_neither_made_nor_erased_nor_told(
    opened: Open, server: Server
) -> None:
    alpha, beta, cleaner = await opened("ann"), await opened("bob"), await opened("cleaner")
    await added(alpha, "same", "mine")
    url = server.url(user="alone", options="-c eventctx_store.tenant=alpha")
    intruder = await PostgresStore.open(url, create=False)
    with pytest.raises(StoreReadOnly, match="row-level security"):
        await added(intruder, "planted", "one")
    await intruder.close()
    for expected in (NO_STREAM, ANY):
        with pytest.raises(StoreReadOnly, match="belongs to another role: same"):
            await beta.append("same", [make_draft()], expected)
    await added(beta, "own", "yours")
    with pytest.raises(StreamExists):
        await beta.fork("own", 0, "same", make_draft())
    assert (await alpha.head("same")).head == 0
    with pytest.raises(StreamNotFound):
        await cleaner.erase({"own": {Address(0): b""}})


async def test_members_of_a_tenant_share_its_sessions_and_who_has_none_is_one(opened: Open) -> None:
    alpha, amy, alone = await opened("ann"), await opened("amy"), await opened("alone")
    await added(amy, "hers", "one")
    await added(alpha, "hers", "two")
    await added(alone, "its own", "one")
    assert (await names(alpha), await names(alone)) == (["hers"], ["its own"])
    assert (await amy.head("hers")).head == 1


async def test_a_tenant_whose_role_is_gone_disturbs_nobody(opened: Open, server: Server) -> None:
    alpha = await opened("ann")
    await added(alpha, "a", "one")
    server.execute("UPDATE eventctx.streams SET tenant = 'gone \"role'")
    await added(alpha, "b", "one")
    assert await names(alpha) == ["b"]


CHANGES = (
    "UPDATE eventctx.records SET payload = ''",
    "UPDATE eventctx.records SET data = NULL",
    "DELETE FROM eventctx.records",
    "TRUNCATE eventctx.records",
    "UPDATE eventctx.bodies SET data = NULL",
    "DELETE FROM eventctx.bodies",
    "UPDATE eventctx.streams SET tenant = 'beta'",
    "UPDATE eventctx.streams SET deleted = true",
    "DELETE FROM eventctx.streams",
    "UPDATE eventctx.meta SET value = '0'",
    "SELECT eventctx.forget_words('a', 0, 0)",
    "ALTER TABLE eventctx.records DISABLE ROW LEVEL SECURITY",
)


@pytest.mark.parametrize("user", ["ann", "watcher"])
async def test_the_server_refuses_a_change_of_records_by_a_writer_or_a_reader(
    opened: Open, server: Server, user: str
) -> None:
    await added(await opened("ann"), "a", "one")
    with server.connection(user=user) as connection:
        for statement in CHANGES:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())


async def test_a_reader_of_a_tenant_reads_and_searches_but_writes_nothing(opened: Open) -> None:
    alpha, watcher = await opened("ann"), await opened("watcher")
    await added(alpha, "a", "hello")
    assert [r.position async for r in watcher.read("a")] == [0]
    recall = Recall(watcher, PostgresTextIndex(watcher))
    assert len(await recall.search("hello")) == 1
    await recall.close()
    for write in (
        lambda: watcher.append("a", [make_draft()], ANY),
        lambda: watcher.fork("a", 0, "mine", make_draft()),
    ):
        with pytest.raises(StoreReadOnly, match="expected to be allowed"):
            await write()
    assert (await alpha.head("a")).head == 0


async def test_only_the_eraser_erases_and_deletes(opened: Open) -> None:
    alpha, cleaner = await opened("ann"), await opened("cleaner")
    await added(alpha, "a", "secret", "kept")
    recall = Recall(alpha, PostgresTextIndex(alpha))
    assert len(await recall.search("secret")) == 1
    with pytest.raises(StoreReadOnly, match="expected to be allowed"):
        await alpha.erase({"a": {Address(0): b""}})
    with pytest.raises(StoreReadOnly, match="expected to be allowed"):
        await alpha.delete("a", make_draft(), 1)
    assert (await cleaner.erase({"a": {Address(0): b""}})).bodies == 1
    assert (await alpha.bodies("a", [Address(0)]))[0].data is None
    PostgresTextIndex(alpha).close()
    assert await cleaner.scrubbed()
    await cleaner.delete("a", make_draft(), 1)
    assert (await alpha.head("a")).deleted
    await recall.close()


async def test_an_eraser_who_may_not_write_the_tables_anew_is_told_what_is_left_to_do(
    server: Server, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    alpha, hand = await opened("ann"), await opened("hand")
    await added(alpha, "a", "secret")
    assert (await hand.erase({"a": {Address(0): b""}})).bodies == 1
    assert not await hand.scrubbed()
    assert "when their owner writes them anew: VACUUM FULL eventctx." in caplog.text
    for table in ("records", "bodies", "snapshots"):
        await asyncio.to_thread(server.execute, f"VACUUM FULL eventctx.{table}")
    assert await hand.scrubbed()


PAGE = DOCS / "how-to" / "keep-sessions-in-postgresql.md"
SAFE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


def compose(name: str) -> dict[str, Any]:
    assert f"(compose/{name})" in PAGE.read_text()
    return dict(yaml.safe_load((PAGE.parent / "compose" / name).read_text()))


def test_the_primary_of_the_compose_file_waits_for_one_of_two_standbys() -> None:
    file = compose("postgresql.yaml")
    services = file["services"]
    assert {one["image"] for one in services.values()} == {"postgres:18"}
    command = services["primary"]["command"]
    given = dict(re.findall(r"-c (\w+)=('[^']*'|\S+)", command))
    assert SAFE.items() <= given.items()
    names = given["synchronous_standby_names"].strip("'")
    assert standbys_needed(names) == 1
    standbys = [one for one in services if one != "primary"]
    assert [services[one]["environment"]["NAME"] for one in standbys] == standbys
    assert names == f"ANY 1 ({', '.join(standbys)})"
    assert "application_name='$$NAME'" in services["standby1"]["command"]
    assert set(file["volumes"]) == set(services)
    assert {one for service in services.values() for one in service["secrets"]} == set(
        file["secrets"]
    )


def test_the_cluster_of_the_compose_file_acknowledges_nothing_without_a_standby() -> None:
    file = compose("patroni.yaml")
    assert set(file["services"]) == {f"{kind}{n}" for kind in ("etcd", "db") for n in (1, 2, 3)}
    for name, service in file["services"].items():
        variable = "ETCD_NAME" if name.startswith("etcd") else "PATRONI_NAME"
        assert service["environment"][variable] == name
        if variable == "ETCD_NAME":
            assert re.fullmatch(r"quay\.io/coreos/etcd:v3\.5\.\d+", service["image"])
        else:
            assert "FROM postgres:18\n" in service["build"]["dockerfile_inline"]
    settings = yaml.safe_load(file["configs"]["patroni"]["content"])
    cluster = settings["bootstrap"]["dcs"]
    tried = patroni.settings("m", "h", (1, 2), PAGE, "")["bootstrap"]["dcs"]
    for name in ("synchronous_mode", "synchronous_mode_strict"):
        assert cluster[name] is tried[name] is True  # what the faults are tried with
    assert cluster["postgresql"]["parameters"] == SAFE
    assert "data-checksums" in settings["bootstrap"]["initdb"]
    assert settings["etcd3"]["hosts"] == [f"etcd{n}:2379" for n in (1, 2, 3)]


@pytest.mark.slow
async def test_the_roles_of_the_page_are_made_by_its_statements() -> None:
    (statements,) = [one.text for one in blocks_of(PAGE) if "make_roles" in one.text]
    with Server(place=memory_folder()) as server:
        await made(server.url())
        with server.connection() as connection:
            connection.execute(statements.encode())
        ann = await PostgresStore.open(server.url(user="ann"))
        assert not ann.read_only
        await ann.close()
