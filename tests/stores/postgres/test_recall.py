"""The server's full-text search finds what a scan of the log finds, and what the file's index does.

Its tables may be lost at any moment, and hold no word of what was erased.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings

import eventctx
from eventctx.log.events import Erased, MessagesSet, SessionFork
from eventctx.log.store import ANY, Address
from eventctx.search import recall as recalling
from eventctx.search.index import Term
from eventctx.search.postgres_index import PostgresTextIndex
from eventctx.search.recall import Recall
from eventctx.search.sqlite_index import SqliteTextIndex
from eventctx.stores.memory import MemoryStore
from eventctx.stores.postgres.store import PostgresStore
from tests.services.in_memory import memory_folder
from tests.services.postgres_server import Server
from tests.stores.test_sqlite_recall import Story, added, batches, draft_of, found, played, scripts


async def numbers(store: PostgresStore, query: str) -> list[int]:
    """What a search by somebody new finds."""
    with closing(PostgresTextIndex(store)) as index:
        return await found(store, index, query)


class ServerStory(Story):
    """A story whose index is the server's, of a store in memory."""

    def __init__(self, store: MemoryStore, server: PostgresStore) -> None:
        super().__init__(store, None)
        self.server = server
        self.recall = Recall(store, PostgresTextIndex(server))

    async def lose(self) -> None:
        index = PostgresTextIndex(self.server)
        await asyncio.to_thread(index.clear)
        await asyncio.to_thread(index.close)

    damage = lose

    async def reopen(self) -> None:
        await self.recall.close()
        self.recall = Recall(self.store, PostgresTextIndex(self.server))


@pytest.fixture(scope="module")
def place(postgres: Server) -> Iterator[str]:
    """One schema for all examples of a story."""
    yield postgres.url(schema="stories")
    postgres.execute("DROP SCHEMA stories CASCADE")


@given(script=scripts, batch=batches)
@settings(deadline=None, max_examples=15)
def test_a_search_finds_what_a_scan_of_the_log_finds(place: str, script: Any, batch: int) -> None:
    async def run() -> None:
        server = await PostgresStore.open(place)
        story = ServerStory(MemoryStore(), server)
        await story.lose()
        await played(story, script, batch)
        await server.close()

    asyncio.run(run())


WORDS = ("key", "the", "größe", "get_key", "getKeyFast", "8080", "数据", "src/a_b.py", "MAX_RETRY")


async def test_the_messages_and_their_order_are_those_of_a_file(store: PostgresStore) -> None:
    chance = random.Random(7)  # noqa: S311
    texts = [
        " ".join(chance.choices(WORDS, k=chance.choice((1, 3, 9, 40, 700)))) for _ in range(60)
    ]
    texts += ["the " * 900 + "needle in the hay", "w " * 40_000 + "far needle"]
    await added(store, "s", *texts)
    server, file = Recall(store, PostgresTextIndex(store)), Recall(store, SqliteTextIndex(None))
    for query in (
        *("key", "the key", '"the key"', '"key the key"', "ke*"),
        *("get", "get key", '"get key"', "8"),
        *("数", "数据 key", "a_b", "b.py", "max retry", "größe 8080 get", "needle", "w needle"),
        *('"the needle"', '"far needle"', '"w far"', "the needle", "GROSSE", "grösse", "nothing"),
    ):
        for session in (None, "s"):
            wanted = await file.search(query, session, limit=1000)
            hits = await server.search(query, session, limit=1000)
            assert [one.number for one in hits] == [one.number for one in wanted], query
            assert await server.count(query, session) == len(wanted), query
            assert await file.count(query, session) == len(wanted), query
    await server.close()
    await file.close()


async def test_a_phrase_is_found_across_the_pieces_of_a_long_message(store: PostgresStore) -> None:
    await added(store, "s", " ".join([f"w{n}" for n in range(40_000)]))
    for at in (*range(15_900, 16_100, 7), 39_998):
        assert await numbers(store, f'"w{at} w{at + 1}"') == [0], at
    assert await numbers(store, '"w1 w3"') == []
    assert await numbers(store, "w1 w39999") == [0]


@pytest.mark.parametrize("tables", ["recall_marks", "recall_marks, {}recall_messages"])
async def test_an_emptied_index_is_filled(
    store: PostgresStore, postgres: Server, tables: str
) -> None:
    await added(store, "s", *["hello"] * 5)
    assert len(await numbers(store, "hello")) == 5
    schema = store.destination.schema + "."
    postgres.execute(f"TRUNCATE {schema}{tables.format(schema)}")
    await added(store, "s", "hello")
    assert len(await numbers(store, "hello")) == 6


async def test_a_crash_of_the_server_loses_the_index_and_no_message() -> None:
    with Server(place=memory_folder()) as server:
        store = await PostgresStore.open(server.url())
        await added(store, "s", *["hello"] * 5)
        recall = Recall(store, PostgresTextIndex(store))
        assert len(await recall.search("hello")) == 5
        server.kill()
        server.start()
        with closing(PostgresTextIndex(store)) as index:
            assert index.mark() is None
        assert len(await recall.search("hello")) == 5
        await recall.close()
        await store.close()


class CountingQuestions(PostgresTextIndex):
    asked = 0

    def _run(self, *args: Any, **options: Any) -> Any:
        self.asked += 1
        return super()._run(*args, **options)


async def test_a_search_without_words_asks_the_server_for_many_places_at_once(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recalling, "_FOUND_AT_ONCE", 100)
    await added(store, "parent", *(f"hello {n}" for n in range(250)))
    await store.fork("parent", 199, "s", draft_of(SessionFork(parent="parent", at=199)))
    await added(store, "s", *(f"other {n}" for n in range(50)))
    index = CountingQuestions(store)
    recall = Recall(store, index)
    await recall.catch_up()
    index.asked = 0
    told = [one.number async for one in recall.matches("", "s", lambda _: True)]
    assert told == list(reversed(range(250)))
    assert index.asked < 10
    assert len([one async for one in recall.matches("", None, lambda _: True)]) == 300
    await recall.close()


async def test_searches_that_fill_one_index_at_once_agree(store: PostgresStore) -> None:
    await added(store, "s", *(f"hello {n}" for n in range(900)))
    recalls = [Recall(store, PostgresTextIndex(store)) for _ in range(4)]
    hits = await asyncio.gather(*(one.search("hello", limit=1000) for one in recalls))
    assert [len(one) for one in hits] == [900] * 4
    for one in recalls:
        await one.close()


async def test_erased_words_leave_the_index_with_the_body_and_the_files_of_the_server() -> None:
    with Server() as server:
        store = await PostgresStore.open(server.url())
        await added(store, "s", *(f"filler{n} words" for n in range(300)), "zqxsecretqxz", "after")
        both = MessagesSet(order=((302, 302), (303, 303)))
        await store.append("s", [draft_of(both, "first", "zqxsecondqxz getZqxsecond")], ANY)
        assert await numbers(store, "zqxsecretqxz") == [300]
        assert await numbers(store, "zqxsecondqxz") == [303]
        await store.erase({"s": {Address(300): b"", Address(302, 1): b""}})
        index = PostgresTextIndex(store)
        for word in ("zqxsecretqxz", "zqxsecondqxz"):
            assert index.search([Term(word)], None, 9, every=True) == []
        assert len(index.search([Term("filler7")], None, 9, every=True)) == 1
        index.close()
        erased = Erased(numbers=(300, 303), bodies=((300, 0), (302, 1)))
        await store.append("s", [draft_of(erased)], ANY)
        assert await numbers(store, "after") == [301]
        assert await store.scrubbed()
        await store.close()
        for _ in range(3):  # its write-ahead log is used in turn
            server.execute("SELECT pg_switch_wal()")
            server.execute("CHECKPOINT")
        files = [one.read_bytes() for one in server.data.rglob("*") if one.is_file()]
        for word in (b"zqxsecretqxz", b"zqxsecondqxz", b"Zqxsecond"):
            assert not any(word in one for one in files)
        assert any(b"filler7" in one for one in files)


async def test_a_deleted_session_leaves_no_word(store: PostgresStore, postgres: Server) -> None:
    await added(store, "gone", "zqxsecretqxz")
    await added(store, "kept", "hello")
    assert await numbers(store, "zqxsecretqxz") == [0]
    await store.delete("gone", draft_of(Erased(numbers=(), bodies=())), 0)
    schema = store.destination.schema
    rows = postgres.execute(f"SELECT stream FROM {schema}.recall_messages WHERE pieces > 0")  # noqa: S608
    assert rows == [("kept",)]


async def test_a_store_that_may_not_write_is_searched_without_a_trace_in_it(
    store: PostgresStore, postgres: Server, postgres_place: str
) -> None:
    await added(store, "s", "the parser fails", "nothing of it")
    async with eventctx.open(postgres_place, read_only=True) as engine:
        assert [one.number for one in await engine.recall("parser")] == [0]
    schema = postgres_place.rpartition("=")[2]
    for table in ("recall_marks", "recall_messages"):
        rows = f'SELECT * FROM "{schema}".{table}'  # noqa: S608 - both names are the test's own
        assert await asyncio.to_thread(postgres.execute, rows) == [], table
