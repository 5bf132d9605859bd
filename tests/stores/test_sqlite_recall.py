"""The full-text index: it finds what a scan of the log finds, and its file may go at any time."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.errors import EventctxError, StoreUnavailable
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.record import Draft
from eventctx.log.store import ANY, Address
from eventctx.projections import transcript
from eventctx.search import recall as searching
from eventctx.search import sqlite_index_file
from eventctx.search.documents import words
from eventctx.search.index import Document, Gone, Mark, Place, Term
from eventctx.search.postgres_index import PostgresTextIndex
from eventctx.search.recall import Recall
from eventctx.search.sqlite_index import SqliteTextIndex
from eventctx.session.erasure import ERASING
from eventctx.stores.memory import MemoryStore
from eventctx.stores.postgres.store import PostgresStore
from eventctx.stores.sqlite import SqliteStore
from eventctx.stores.sqlite_schema import LockWait
from tests.how_much import some
from tests.services.in_memory import memory_folder
from tests.sessions import USER, body_of, user


def draft_of(event, *texts: str) -> Draft:
    name, version, payload = encode_event(event)
    bodies = tuple(body_of(user(text)) for text in texts)
    return Draft(os.urandom(16), name, version, 7, payload, bodies)


async def added(store, stream: str, *texts: str) -> None:
    await store.append(stream, [draft_of(events.MessageAdded(), text) for text in texts], ANY)


def sidecar(path: Path) -> Path:
    return path.with_name(path.name + ".eventctx-recall")


@pytest.fixture
async def store(path, opened) -> SqliteStore:
    return await opened(SqliteStore.open(path))


async def found(store, index, query: str) -> list[int]:
    return sorted(one.number for one in await Recall(store, index).search(query, limit=1000))


async def numbers(store, path, query: str) -> list[int]:
    """What a search by somebody new finds."""
    with closing(SqliteTextIndex(path)) as index:
        return await found(store, index, query)


# -- against a scan ------------------------------------------------------------------------------

VOCABULARY = (
    *("key", "keys", "Key", "the", "größe", "GROSSE", "get_key", "getKey", "x", "8080"),
    *("数据", "据", "e\u0301te", "été", "a.b", "don't", "ΣΑΣ", "σας", "MAX_RETRY_COUNT"),
)
text = st.lists(st.sampled_from(VOCABULARY), max_size=5).map(" ".join)
steps = st.lists(
    st.tuples(st.just("add"), st.integers(0, 3), text)
    | st.tuples(st.just("set"), st.integers(0, 3), st.lists(text, max_size=3))
    | st.tuples(st.just("clear"), st.integers(0, 3))
    | st.tuples(st.just("fork"), st.integers(0, 3), st.integers(0, 9))
    | st.tuples(st.just("erase"), st.integers(0, 3), st.integers(0, 9))
    | st.tuples(st.just("delete"), st.integers(0, 3))
    | st.tuples(st.just("search"), st.sampled_from(VOCABULARY))
    | st.tuples(st.sampled_from(["lose", "damage", "reopen"])),
    max_size=25,
)


class Story:
    """Plays steps into a store, and knows by a scan of the log what a search must find."""

    def __init__(self, store, path: Path | None) -> None:
        self.store = store
        self.path = path
        self.recall = Recall(store, SqliteTextIndex(path))
        self.streams: list[str] = []
        self.made = 0
        self.erased: set[tuple[str, int, int]] = set()

    def stream(self, chosen: int) -> str:
        return self.streams[chosen % len(self.streams)] if self.streams else "s0"

    def name(self) -> str:
        self.made += 1
        return f"s{self.made}"

    async def play(self, step) -> None:
        await getattr(self, step[0])(*step[1:])

    async def add(self, chosen: int, text: str) -> None:
        if chosen == 3 or not self.streams:
            self.streams.append(self.name())
            chosen = -1
        await added(self.store, self.stream(chosen), text)

    async def set(self, chosen: int, texts: list[str]) -> None:
        if self.streams:
            state = await self.transcript(self.stream(chosen))
            kept = [line.number for line in state.lines][::2]
            fresh = range(state.next_number, state.next_number + len(texts))
            order = tuple((number, number) for number in (*kept, *fresh))
            await self.store.append(
                self.stream(chosen), [draft_of(events.MessagesSet(order=order), *texts)], ANY
            )

    async def clear(self, chosen: int) -> None:
        if self.streams:
            await self.store.append(
                self.stream(chosen), [draft_of(events.Cleared(messages=0))], ANY
            )

    async def fork(self, chosen: int, back: int) -> None:
        if self.streams:
            parent, child = self.stream(chosen), self.name()
            at = max(0, (await self.store.head(parent)).head - back)
            await self.store.fork(
                parent, at, child, draft_of(events.SessionFork(parent=parent, at=at))
            )
            self.streams.append(child)

    async def erase(self, chosen: int, which: int) -> None:
        lines = await self.messages(self.stream(chosen)) if self.streams else []
        if lines:
            number, owner, address, _ = lines[which % len(lines)]
            await self.store.erase({self.stream(chosen): {address: b""}})
            self.erased.add((owner, *address))
            event = events.Erased(numbers=(number,), bodies=(tuple(address),))
            for stream in self.streams:
                if any((owner, address) == line[1:3] for line in await self.messages(stream)):
                    await self.store.append(stream, [draft_of(event)], ANY)

    async def delete(self, chosen: int) -> None:
        if self.streams and not await self.store.forks(name := self.stream(chosen)):
            head = await self.store.head(name)
            event = events.SessionDeleted(head.head, head.digest.hex(), head.head + 1)
            await self.store.delete(name, draft_of(event), head.head)
            self.streams.remove(name)

    async def lose(self) -> None:
        if self.path is not None:
            sidecar(self.path).unlink(missing_ok=True)

    async def damage(self) -> None:
        if self.path is not None and sidecar(self.path).exists():
            sidecar(self.path).write_bytes(b"no database " * 999)

    async def reopen(self) -> None:
        await self.recall.close()
        self.recall = Recall(self.store, SqliteTextIndex(self.path))

    async def transcript(self, stream: str):
        state = transcript.initial()
        async for record in self.store.read(stream):
            state = transcript.evolve(state, record)
        return state

    async def messages(self, stream: str) -> list[tuple[int, str, Address, set[str]]]:
        """Number, owner, address and words of every message ever added to a stream."""
        found = []
        state = transcript.initial()
        owners = await self.owners(stream)
        async for record in self.store.read(stream):
            before = state.next_number
            state = transcript.evolve(state, record)
            for line in state.lines:
                if line.number >= before:
                    (body,) = await self.store.bodies(stream, [line.address])
                    known = set() if body.data is None else known_by(body.data)
                    found.append((line.number, owners[record.position], line.address, known))
        return found

    async def owners(self, stream: str) -> list[str]:
        info = await self.store.head(stream)
        inherited = [] if info.parent is None else await self.owners(info.parent)
        inherited = inherited[: (info.forked_at if info.forked_at is not None else -1) + 1]
        return inherited + [stream] * (info.head + 1 - len(inherited))

    async def search(self, word: str) -> None:
        wanted = words(word)
        everywhere = []
        for stream in self.streams:
            expected = []
            for number, owner, address, known in await self.messages(stream):
                # A word of several parts is a phrase; the vocabulary's never meet by chance.
                if all(part in known for part in wanted) and (len(wanted) == 1 or word in known):
                    expected.append(number)
                    everywhere += [number] if owner == stream else []
                    assert (owner, *address) not in self.erased
            found = await self.recall.search(word, stream, limit=1000)
            assert sorted(one.number for one in found) == sorted(expected), (word, stream)
            assert [one.score for one in found] == sorted([h.score for h in found], reverse=True)
            assert await self.recall.count(word, stream) == len(expected), (word, stream)
        found = await self.recall.search(word, limit=1000)
        assert sorted(one.number for one in found) == sorted(everywhere), word
        assert await self.recall.count(word) == len(everywhere), word


def known_by(data: bytes) -> set[str]:
    """Words by which a message is found: its own, the parts of identifiers, and itself."""
    spoken = msgspec.json.decode(data)["content"].split(" ")
    found = set(spoken)
    for one in spoken:
        found.update(words(one))
        humps = "".join(f" {c}" if c.isupper() and not one.isupper() else c for c in one)
        found.update(words(humps.replace("_", " ")))
    return found


async def played(story: Story, script, batch: int, size: int = searching.BATCH_BYTES) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "BATCH_BYTES", size)
        patch.setattr(searching, "BATCH_RECORDS", batch)
        async with asyncio.timeout(240):
            for step in script:
                await story.play(step)
            for word in VOCABULARY[::3]:
                await story.search(word)
            fresh = Recall(story.store, SqliteTextIndex(None))
            for word in VOCABULARY if story.path else ():
                assert await story.recall.search(word) == await fresh.search(word), word
            await fresh.close()
    await story.recall.close()
    await story.store.close()


batches = st.sampled_from([1, 2, 3, 4, 5, searching.BATCH_RECORDS])


@given(steps, batches)
@settings(deadline=None, max_examples=some(50, 100))
def test_a_search_finds_what_a_scan_of_the_log_finds(script, batch):
    async def run():
        await played(Story(MemoryStore(), None), script, batch)

    asyncio.run(run())


destructive = st.lists(
    st.tuples(st.just("add"), st.sampled_from([0, 1, 3]), text | st.just("key " * 300))
    | st.tuples(st.just("fork"), st.integers(0, 3), st.integers(0, 9))
    | st.tuples(st.just("erase"), st.integers(0, 3), st.integers(0, 9))
    | st.tuples(st.just("delete"), st.integers(0, 3))
    | st.tuples(st.just("search"), st.sampled_from(VOCABULARY)),
    min_size=8,
    max_size=30,
)
scripts = steps | destructive


@given(scripts, batches, st.sampled_from([500, searching.BATCH_BYTES]))
@settings(deadline=None, max_examples=some(18, 85))
def test_a_lost_file_and_deletions_in_any_batch_leave_what_a_fresh_index_holds(script, batch, size):
    async def run(path):
        await played(Story(await SqliteStore.open(path), path), script, batch, size)

    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        asyncio.run(run(Path(folder) / "store.db"))


# -- the file ------------------------------------------------------------------------------------


async def test_nothing_is_written_before_the_first_search_and_one_private_file_after(store, path):
    recall = Recall(store, SqliteTextIndex(path))
    await added(store, "s", "hello")
    assert not sidecar(path).exists()
    assert len(await recall.search("hello")) == 1
    await recall.close()
    await recall.close()
    await store.close()
    assert sorted(path.parent.iterdir()) == [path, sidecar(path)]
    assert sys.platform == "win32" or stat.S_IMODE(sidecar(path).stat().st_mode) == 0o600
    with pytest.raises(StoreUnavailable, match="closed"):
        await recall.catch_up()


@pytest.mark.parametrize("heals", [True, False])
async def test_an_index_whose_mark_stands_ends_a_search(store, path, heals, monkeypatch, tmp_path):
    monkeypatch.setattr(searching, "BATCH_RECORDS", 1)
    await added(store, "s", "hello")
    assert await numbers(store, path, "hello") == [0]
    await store.append("s", [draft_of(events.Cleared(messages=0)) for _ in range(3)], ANY)
    with closing(sqlite3.connect(sidecar(path))) as index, index:
        index.execute("CREATE TRIGGER stuck BEFORE INSERT ON mark BEGIN SELECT RAISE(IGNORE); END")
    async with asyncio.timeout(240):
        if heals:
            assert await numbers(store, path, "hello") == [0]
            return
        # Somebody puts the damaged file in its place each time that it is removed.
        shutil.copy(sidecar(path), tmp_path / "stuck")
        unlink = Path.unlink

        def restored(place: Path, missing_ok: bool = False) -> None:
            unlink(place, missing_ok)
            if place == sidecar(path):
                shutil.copy(tmp_path / "stuck", place)

        monkeypatch.setattr(Path, "unlink", restored)
        with pytest.raises(StoreUnavailable, match="lost 12 times"):
            await numbers(store, path, "hello")


async def test_a_store_opens_whose_index_somebody_locked(path, caplog, monkeypatch):
    monkeypatch.setattr(sqlite_index_file, "LockWait", lambda _: LockWait(0.2))
    async with eventctx.open(path) as engine:
        await (await engine.session("s")).add_message(USER)
        await engine.recall("hello")
        await engine.store.save_checkpoint(ERASING, 1)
    other = apsw.Connection(str(sidecar(path)))
    other.execute("BEGIN EXCLUSIVE")
    async with asyncio.timeout(240), eventctx.open(path) as engine:
        assert "may still be in the search index" in caplog.text
        assert await engine.store.load_checkpoint(ERASING) == 1
        assert len(await engine.transcript("s")) == 1
    other.close()
    async with eventctx.open(path) as engine:
        assert await engine.store.load_checkpoint(ERASING) == 0


async def test_words_of_erased_messages_are_nowhere_in_the_raw_files(store, path):
    secrets = [f"zq{n}secret{n}qz" for n in range(40)]
    for n, secret in enumerate(secrets):
        await added(store, "s", f"filler{n} words", f"{secret} Geheim{secret}", "after")
        if n % 7 == 0:  # so that the words lie in several segments of the index
            await numbers(store, path, "after")
    raw = path.parent / "raw"
    for n, secret in enumerate(secrets[::3]):
        position = 9 * n + 1
        await numbers(store, path, "after")
        await store.erase({"s": {Address(position): b""}})
        event = events.Erased(numbers=(position,), bodies=((position, 0),))
        await store.append("s", [draft_of(event)], ANY)
        await numbers(store, path, "after")
        for place in path.parent.glob(f"{path.name}.eventctx-recall*"):
            shutil.copy(place, raw)
            # Terms are stored without what they share with the one before, so look for the rest.
            assert secret[3:].encode() not in raw.read_bytes()
            assert f"ecret{3 * n}qz".encode() not in raw.read_bytes()
    assert b"secret1qz" in raw.read_bytes()


def spoilt(kind: str, place: Path) -> None:
    content = place.read_bytes()
    if kind == "gone":
        place.unlink()
    elif kind == "half":
        place.write_bytes(content[: len(content) // 2])
    elif kind == "garbage inside":
        place.write_bytes(content[:4096] + os.urandom(len(content) - 4096))
    else:
        sql = "DROP TABLE messages" if "table" in kind else "PRAGMA user_version=999999"
        with closing(sqlite3.connect(place)) as other, other:
            other.execute(sql)


@pytest.mark.parametrize("while_open", [False, True])
@pytest.mark.parametrize("kind", ["gone", "half", "garbage inside", "a version", "a lost table"])
async def test_a_damaged_file_of_ours_is_replaced(store, path, kind, while_open):
    await added(store, "s", *(f"hello {n}" for n in range(200)))
    index = SqliteTextIndex(path)
    recall = Recall(store, index)
    assert len(await recall.search("hello", limit=1000)) == 200
    if not while_open:
        await recall.close()
        index = SqliteTextIndex(path)
        recall = Recall(store, index)
    spoilt(kind, sidecar(path))
    await added(store, "s", "hello again")
    assert len(await recall.search("hello", limit=1000)) == 201
    assert index.path == sidecar(path)
    await recall.close()
    assert await numbers(store, path, "again") == [200]


async def test_an_index_of_another_store_under_the_same_name_is_made_anew(path):
    for word in ("first", "second", "third"):
        path.unlink(missing_ok=True)
        store = await SqliteStore.open(path)
        await added(store, "s", *[word] * (1 if word == "third" else 3))
        assert len(await numbers(store, path, word)) == (1 if word == "third" else 3)
        assert await numbers(store, path, "first first") == ([0, 1, 2] if word == "first" else [])
        await store.close()


async def test_a_locked_index_is_a_typed_error(store, path):
    await added(store, "s", "hello")
    await numbers(store, path, "hello")
    await added(store, "s", "hello")
    other = apsw.Connection(str(sidecar(path)))
    other.execute("BEGIN EXCLUSIVE")
    recall = Recall(store, SqliteTextIndex(path, lock_timeout=0.2))
    with pytest.raises(StoreUnavailable, match="another program"):
        await recall.search("hello")
    other.execute("ROLLBACK")
    other.close()
    assert len(await recall.search("hello")) == 2
    await recall.close()


# -- several processes ---------------------------------------------------------------------------


@pytest.mark.slow
async def test_processes_that_delete_each_others_index_find_everything(store, path, program):
    await added(store, "s", *(f"hello {n}" for n in range(500)))
    processes = [program("search", path, "hello", 15) for _ in range(2)]
    for process in processes:
        output, errors = await asyncio.to_thread(process.communicate)
        assert errors == ""
        assert output.split() == ["500"] * 16
    assert len(await numbers(store, path, "hello")) == 500


@pytest.mark.slow
async def test_a_process_that_is_killed_as_it_fills_the_index_harms_nothing(store, path, program):
    await added(store, "s", *(f"hello {n} " + f"w{n} " * 2000 for n in range(900)))
    chance = random.Random(1)  # noqa: S311
    for _ in range(some(2, 4)):
        victim = program("search", path, "hello", 0)
        while not sidecar(path).exists() and victim.poll() is None:
            await asyncio.to_thread(time.sleep, 0.005)
        await asyncio.to_thread(time.sleep, chance.uniform(0, 0.3))
        victim.kill()
        await asyncio.to_thread(victim.communicate)
        index = SqliteTextIndex(path)
        index.mark()
        index.close()
    assert await numbers(store, path, "hello") == list(range(900))


# -- the protocol --------------------------------------------------------------------------------


@pytest.fixture(params=["a file", "postgres"])
async def indexed(request, path, opened) -> tuple[Any, Callable[..., Any]]:
    """A store, and what opens its index."""
    if request.param == "a file":
        return await opened(SqliteStore.open(path)), partial(SqliteTextIndex, path)
    store = await opened(PostgresStore.open(request.getfixturevalue("postgres_place")))
    return store, partial(PostgresTextIndex, store)


async def test_an_index_is_kept_but_of_older_documents_and_only_what_is_new_is_added(indexed):
    store, make = indexed
    await added(store, "s", *["hello"] * 20)
    index = make()
    assert len(await found(store, index, "hello")) == 20
    last = [record async for record in store.read_all()][-1]
    assert index.mark() == (last.global_position, last.id)
    # What is there is believed: these records are not read again.
    index.forget([Gone("s", 3, 0)])
    index.close()
    await added(store, "s", "hello")
    again = make()
    assert await found(store, again, "hello") == [n for n in range(21) if n != 3]
    again.close()
    for version in (8, 9):
        index = make(version=version)
        assert index.mark() is None
        assert await found(store, index, "hello") == list(range(21))
        index.close()


async def test_who_was_slower_adds_nothing(indexed):
    _, make = indexed
    index = make()
    first, second = Mark(3, b"a"), Mark(5, b"b")
    one = Document(Place("s", 0, 0, 0, 1), "hello")
    assert index.extend(None, first, [one])
    assert not index.extend(None, second, [one])
    assert index.mark() == first
    assert len(index.search([Term("hello")], None, 9, every=True)) == 1
    index.clear()
    assert index.mark() is None
    index.close()


async def test_a_driver_s_error_never_leaks(store, path, tmp_path):
    await added(store, "s", "hello")
    recall = Recall(store, SqliteTextIndex(tmp_path / "no folder" / "store.db"))
    assert len(await recall.search("hello")) == 1
    await recall.close()
    await store.close()
    closed = Recall(store, SqliteTextIndex(None))
    with pytest.raises(EventctxError):
        await closed.search("hello", "s")


async def test_a_store_whose_deletion_was_never_finished_opens(path):
    async with eventctx.open(path) as engine:
        for name in ("kept", "old"):
            await (await engine.session(name)).add_message(user(f"secret {name}"))
        head = await engine.store.head("old")
        await engine.recall("nothing")
        # The process that deleted was killed while it cleared the index again and again.
        event = events.SessionDeleted(head.head, head.digest.hex(), head.head + 1)
        await engine.store.save_checkpoint(ERASING, 1)
        await engine.store.delete("old", draft_of(event), head.head)
        engine.recaller()._index.clear()
    async with asyncio.timeout(240), eventctx.open(path) as engine:
        assert await engine.store.load_checkpoint(ERASING) == 0
        assert [one.session for one in await engine.recall("secret")] == ["kept"]
