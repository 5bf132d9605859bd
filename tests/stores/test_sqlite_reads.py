"""Reads of a file: what they give in which order, and of one that nobody may write."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import eventctx
from eventctx.errors import InvalidSetting, StoreReadOnly, StoreUnavailable
from eventctx.log.store import ANY, NO_STREAM, Address, Receipt, last_position
from eventctx.projections.timeline.snapshot import dump
from eventctx.queries.frame_files import FrameFiles
from eventctx.queries.key_frames import timeline_at
from eventctx.stores.sqlite import SqliteStore
from eventctx.stores.sqlite_queries import Queries
from eventctx.testing.store_contract.drafts import make_draft
from tests.sessions import user


async def stored(path: Path) -> dict[str, dict[Address, bytes]]:
    """A stream, a fork of it in its middle and a fork of that one; what lies where in each."""
    draw = random.Random(7)  # noqa: S311
    store = await SqliteStore.open(path)
    places: dict[str, dict[Address, bytes]] = {}
    first = 0
    for number, (stream, parent) in enumerate((("a", None), ("b", "a"), ("c", "b"))):
        drafts = [
            make_draft(*(b"%d.%d" % (first + at, n) for n in range(draw.choice((0, 1, 1, 1, 5)))))
            for at in range(120)
        ]
        if parent is None:
            await store.append(stream, drafts, NO_STREAM)
        else:
            await store.fork(parent, first - 1, stream, drafts[0])
            await store.append(stream, drafts[1:], first)
        known = {} if parent is None else places[parent]
        places[stream] = {
            **{place: data for place, data in known.items() if place.position < first},
            **{
                Address(first + at, index): body.data or b""
                for at, draft in enumerate(drafts)
                for index, body in enumerate(draft.bodies)
            },
        }
        first += 80 if number == 0 else 120
    await store.close()
    return places


@pytest.mark.slow
async def test_bodies_anywhere_in_a_line_of_forks_come_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    places = await stored(path)
    store = await SqliteStore.open(path)
    draw = random.Random(11)  # noqa: S311
    for stream, known in places.items():
        wanted = sorted(known)
        for _ in range(30):
            found = await store.bodies(stream, wanted)
            assert [body.data for body in found] == [known[place] for place in wanted]
            # Some of them in order, with gaps of every length; at times all over the place.
            wanted = [place for place in sorted(known) if draw.random() < draw.random()]
            if draw.random() < 0.3:
                draw.shuffle(wanted)
    await store.close()


async def test_bodies_with_gaps_between_them_are_one_query(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    known = (await stored(path))["a"]
    with apsw.Connection(str(path)) as connection:
        queries = Queries(connection)
        queries.lineage("a")
        asked: list[str] = []
        connection.exec_trace = lambda cursor, sql, bindings: asked.append(sql) or True
        wanted = [place for place in sorted(known) if place.index == 0 and place.position % 3]
        assert len(queries.bodies("a", wanted)) == len(wanted) > 50
        assert len(asked) == 1


@pytest.mark.slow
async def test_another_processs_commit_is_seen_at_once(
    path: Path, program: Callable[..., Any]
) -> None:
    store = await SqliteStore.open(path)
    async with eventctx.open(path, read_only=True) as engine:
        news = engine.store.subscribe(stream="other")
        coming = asyncio.ensure_future(anext(news))
        assert store.peek("other") == -1
        other = program("open_and_append", path)
        assert [await asyncio.to_thread(other.stdout.readline) for _ in range(2)][1] == "opened\n"
        for _ in range(30):
            print("one more", file=other.stdin, flush=True)
            said = Receipt.parse((await asyncio.to_thread(other.stdout.readline)).strip())
            assert store.peek("other") == said.position
            done = await store.append("other", [make_draft()], ANY)
            assert store.peek("other") == done.receipt.position
        assert (await asyncio.wait_for(coming, 60)).position == 0
        await news.aclose()
    await store.close()


async def test_where_it_has_no_answer_the_head_is_asked_for(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.append("s", [make_draft()], ANY)
    beside = await SqliteStore.open(path)
    await beside.close()
    assert beside.peek("s") is None
    assert store.peek("s") == 0
    peek = store._file._peek
    with peek._lock:  # as while another thread asks
        assert store.peek("s") is None
        assert await last_position(store, "s") == 0
    await store.close()


HELPERS = {"s.db-wal", "s.db-shm"}
"""What SQLite keeps beside a database that somebody reads; the log is empty."""


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    place = tmp_path / "s.db"
    async with eventctx.open(place) as engine:
        await (await engine.session("work")).add_message(user("Fix the lighthouse."))
    return place


def state(path: Path) -> tuple[str, int]:
    return hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns


async def test_reading_leaves_the_file_as_it_was_and_nothing_beside_it_but_sqlites_helpers(path):
    before = state(path)
    async with eventctx.open(path, read_only=True) as engine:
        assert [info.stream for info in await engine.sessions()] == ["work"]
        assert len(await engine.transcript("work")) == 1
        assert [one.number for one in await engine.recall("lighthouse")] == [0]
        assert (await engine.verify("work")).ok
        beside = [one for one in path.parent.iterdir() if one != path]
        assert {one.name for one in beside} <= HELPERS
        assert os.name != "posix" or all(one.stat().st_mode & 0o077 == 0 for one in beside)
    assert state(path) == before
    left = {one.name: one.stat().st_size for one in path.parent.iterdir() if one != path}
    assert left.keys() <= HELPERS
    assert left.get("s.db-wal", 0) == 0


async def test_a_search_begins_with_the_index_that_lies_there_and_leaves_it_alone(path):
    async with eventctx.open(path) as engine:
        await engine.recall("lighthouse")
        await (await engine.session("work")).add_message(user("beacon"))
    index = path.with_name("s.db.eventctx-recall")
    before = state(index)
    async with eventctx.open(path, read_only=True) as engine:
        mark = engine.recaller()._index.mark()
        assert mark is not None
        assert [one.number for one in await engine.recall("beacon")] == [1]
    assert state(index) == before
    index.write_bytes(b"somebody else's")
    async with eventctx.open(path, read_only=True) as engine:
        assert [one.number for one in await engine.recall("beacon")] == [1]
    assert index.read_bytes() == b"somebody else's"


async def test_every_write_is_refused(path):
    async with eventctx.open(path, read_only=True) as engine:
        with pytest.raises(StoreReadOnly):
            await engine.store.append("work", [make_draft()], ANY)
        ctx = await engine.session("work")
        with pytest.raises(StoreReadOnly):
            await ctx.add_message(user("more"))
        with pytest.raises(StoreReadOnly):
            await engine.fork("work", 0, "other")


async def test_it_refuses_writes_also_beside_a_writer_of_this_process_and_leaves_that_alone(path):
    async with eventctx.open(path) as writer:
        ctx = await writer.session("work")
        async with eventctx.open(path, read_only=True) as reader:
            await ctx.add_message(user("more"))
            assert len(await reader.transcript("work")) == 2
            with pytest.raises(StoreReadOnly):
                await reader.store.append("work", [make_draft()], ANY)
        await ctx.add_message(user("more"))
        assert len(await ctx.get_messages()) == 3


async def test_nothing_is_created(tmp_path):
    with pytest.raises(StoreUnavailable, match="found nothing there"):
        await SqliteStore.open(tmp_path / "none.db", read_only=True)
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(StoreReadOnly):
        await SqliteStore.open(empty, read_only=True)
    assert empty.stat().st_size == 0
    with pytest.raises(InvalidSetting, match="read_only"):
        async with eventctx.open("memory://", read_only=True):
            pass


async def test_a_receipt_that_does_not_hold_is_told_and_not_noted(path, tmp_path, caplog):
    book = tmp_path / "book.jsonl"
    async with eventctx.open(path, receipts=book) as engine:
        ctx = await engine.session("work")
        async with ctx.turn():
            await ctx.add_message(user("go on"))
    noted = book.read_text().replace('"position":', '"position":9')
    book.write_text(noted)
    async with eventctx.open(path, receipts=book, read_only=True) as engine:
        await engine.verify("work")
    assert book.read_text() == noted
    assert "is not what it was" in caplog.text


async def test_the_key_frames_that_lie_there_are_read_and_left_alone(path):
    async with eventctx.open(path) as engine:
        state = await timeline_at(engine.store, "work")
    files, reading = FrameFiles(path), FrameFiles(path, read_only=True)
    frame = dump(state, None)
    await reading.save("work", None, [frame])
    assert await reading.load("work") is None
    await files.save("work", None, [frame])
    await reading.forget("work")
    assert await reading.load("work") is not None
    async with eventctx.open(path, read_only=True) as engine:
        assert (await timeline_at(engine.store, "work")).digest == state.digest
