"""Reads of a file, also of one that nobody may write, and its locks: who waits, who is killed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import eventctx
from eventctx.errors import InvalidSetting, StoreReadOnly, StoreUnavailable
from eventctx.log.store import ANY, Address, Receipt, last_position
from eventctx.projections.timeline.snapshot import dump
from eventctx.queries.frame_files import FrameFiles
from eventctx.queries.key_frames import timeline_at
from eventctx.stores.sqlite import SqliteStore
from eventctx.stores.sqlite_queries import Queries
from eventctx.stores.sqlite_schema import open_file
from eventctx.testing.store_contract.drafts import gather
from eventctx.testing.store_contract.drafts import make_draft as draft
from tests.how_much import some
from tests.session.test_erasing import SECRET, files_with, talk
from tests.sessions import USER, user


async def stored(path: Path) -> dict[str, dict[Address, bytes]]:
    """A stream, a fork of it in its middle and a fork of that one; what lies where in each."""
    draw = random.Random(7)  # noqa: S311
    store = await SqliteStore.open(path)
    places: dict[str, dict[Address, bytes]] = {}
    for stream, parent, at in (("a", "", 0), ("b", "a", 79), ("c", "b", 199)):
        numbers = [draw.choice((0, 1, 1, 1, 5)) for _ in range(120)]
        drafts = [draft(*map(str, range(number))) for number in numbers]
        if parent:
            await store.fork(parent, at, stream, drafts.pop(0))
        await store.append(stream, drafts, ANY)
        places[stream] = {
            Address(record.position, index): body.data or b""
            for record in await gather(store.read(stream))
            for index, body in enumerate(record.bodies)
        }
    await store.close()
    return places


@pytest.mark.slow
async def test_bodies_anywhere_in_a_line_of_forks_come_as_asked_for(
    tmp_path: Path, opened: Any
) -> None:
    path = tmp_path / "store.db"
    places = await stored(path)
    store = await opened(SqliteStore.open(path))
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
    path: Path, program: Callable[..., Any], opened
) -> None:
    store = await opened(SqliteStore.open(path))
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
            done = await store.append("other", [draft()], ANY)
            assert store.peek("other") == done.receipt.position
        assert (await asyncio.wait_for(coming, 60)).position == 0
        await news.aclose()


async def test_where_it_has_no_answer_the_head_is_asked_for(path: Path, opened: Any) -> None:
    store = await opened(SqliteStore.open(path))
    await store.append("s", [draft()], ANY)
    beside = await SqliteStore.open(path)
    await beside.close()
    assert beside.peek("s") is None
    assert store.peek("s") == 0
    peek = store._file._peek
    with peek._lock:  # as while another thread asks
        assert store.peek("s") is None
        assert await last_position(store, "s") == 0


HELPERS = {"s.db-wal", "s.db-shm"}
"""What SQLite keeps beside a database that somebody reads; the log is empty."""


@pytest.fixture
async def place(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        await (await engine.session("work")).add_message(user("Fix the lighthouse."))
    return path


def state(path: Path) -> tuple[str, int]:
    return hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns


async def test_reading_leaves_the_file_as_it_was_and_nothing_beside_it_but_sqlites_helpers(place):
    before = state(place)
    async with eventctx.open(place, read_only=True) as engine:
        assert [info.stream for info in await engine.sessions()] == ["work"]
        assert len(await engine.transcript("work")) == 1
        assert [one.number for one in await engine.recall("lighthouse")] == [0]
        assert (await engine.verify("work")).ok
        beside = [one for one in place.parent.iterdir() if one != place]
        assert {one.name for one in beside} <= HELPERS
        assert os.name != "posix" or all(one.stat().st_mode & 0o077 == 0 for one in beside)
    assert state(place) == before
    left = {one.name: one.stat().st_size for one in place.parent.iterdir() if one != place}
    assert left.keys() <= HELPERS
    assert left.get("s.db-wal", 0) == 0


async def test_a_search_begins_with_the_index_that_lies_there_and_leaves_it_alone(place):
    async with eventctx.open(place) as engine:
        await engine.recall("lighthouse")
        await (await engine.session("work")).add_message(user("beacon"))
    index = place.with_name("s.db.eventctx-recall")
    before = state(index)
    async with eventctx.open(place, read_only=True) as engine:
        assert engine.recaller()._index.mark() is not None
        assert [one.number for one in await engine.recall("beacon")] == [1]
    assert state(index) == before
    index.write_bytes(b"somebody else's")
    async with eventctx.open(place, read_only=True) as engine:
        assert [one.number for one in await engine.recall("beacon")] == [1]
    assert index.read_bytes() == b"somebody else's"


async def test_every_write_is_refused_also_beside_a_writer_of_this_process(place):
    async with eventctx.open(place) as writer:
        ctx = await writer.session("work")
        async with eventctx.open(place, read_only=True) as reader:
            await ctx.add_message(user("more"))
            assert len(await reader.transcript("work")) == 2
            reading = await reader.session("work")
            for write in (
                lambda: reader.store.append("work", [draft()], ANY),
                lambda: reading.add_message(user("more")),
                lambda: reader.fork("work", 0, "other"),
            ):
                with pytest.raises(StoreReadOnly):
                    await write()
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


async def test_a_receipt_that_does_not_hold_is_told_and_not_noted(place, tmp_path, caplog):
    book = tmp_path / "book.jsonl"
    async with eventctx.open(place, receipts=book) as engine:
        ctx = await engine.session("work")
        async with ctx.turn():
            await ctx.add_message(user("go on"))
    noted = book.read_text().replace('"position":', '"position":9')
    book.write_text(noted)
    async with eventctx.open(place, receipts=book, read_only=True) as engine:
        await engine.verify("work")
    assert book.read_text() == noted
    assert "is not what it was" in caplog.text


async def test_the_key_frames_that_lie_there_are_read_and_left_alone(place):
    async with eventctx.open(place) as engine:
        state = await timeline_at(engine.store, "work")
    files, reading = FrameFiles(place), FrameFiles(place, read_only=True)
    frame = dump(state, None)
    await reading.save("work", None, [frame])
    assert await reading.load("work") is None
    await files.save("work", None, [frame])
    await reading.forget("work")
    assert await reading.load("work") is not None
    async with eventctx.open(place, read_only=True) as engine:
        assert (await timeline_at(engine.store, "work")).digest == state.digest


OLD_SQLITE = sqlite3.sqlite_version_info < (3, 51)


def locks(path: Path) -> list[str]:
    """Locks of this process on the file, without their numbers in the table."""
    inode = f":{path.stat().st_ino}"
    lines = [line.split()[1:] for line in Path("/proc/locks").read_text().splitlines()]
    return sorted(
        " ".join(line) for line in lines if line[4].endswith(inode) and line[3] == str(os.getpid())
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/locks")
async def test_nothing_that_opens_a_store_again_drops_its_locks(path, tmp_path):
    async with eventctx.open(path) as engine:
        await (await engine.session("s")).add_message(USER)
        held = locks(path), locks(path.with_name("store.db-shm"))
        assert all(held), "an open store holds locks on its file and on the index of its log"

        async with eventctx.open(path) as second, eventctx.open(path) as third:
            await second.recall("hello")
            await third.hook_failures()
        other = tmp_path / "hard link.db"
        other.hardlink_to(path)
        async with eventctx.open(other) as linked:
            await linked.verify("s")
        assert (await engine.backup(tmp_path / "copy.db")).ok
        assert (locks(path), locks(path.with_name("store.db-shm"))) == held


@pytest.mark.slow
@pytest.mark.skipif(not OLD_SQLITE, reason="needs an SQLite before 3.51 beside the package's own")
async def test_an_older_sqlite_that_looks_into_a_live_store_loses_nothing(path, program):
    writer = program("open_twice", path)
    acknowledged: list[str] = []
    while (line := (await asyncio.to_thread(writer.stdout.readline)).strip()) != "opened":
        assert line, await asyncio.to_thread(writer.stderr.read)
        acknowledged.append(line)
    with closing(sqlite3.connect(path)) as looking:
        assert looking.execute("SELECT count(*) FROM records").fetchone() > (20,)
    acknowledged += [(await asyncio.to_thread(writer.stdout.readline)).strip() for _ in range(100)]
    writer.kill()
    acknowledged += (await asyncio.to_thread(writer.communicate))[0].splitlines()

    async with eventctx.open(path) as engine:
        assert len(await engine.transcript("kept")) >= len(acknowledged)
        assert (await engine.verify("kept", eventctx.Receipt.parse(acknowledged[-1]))).ok


async def test_two_stores_on_one_file_share_what_is_open(path):
    one, two = await SqliteStore.open(path), await SqliteStore.open(path, durability="normal")
    await one.append("s", [draft("a")], ANY)
    await two.append("s", [draft("b")], ANY)
    await one.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await one.append("s", [draft("c")], ANY)
    await two.append("s", [draft("d")], ANY)
    assert [record.position for record in await gather(two.read("s"))] == [0, 1, 2]
    await two.close()


@pytest.mark.parametrize("what", ["store.db", "store.db-wal"])
@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_a_file_that_goes_away_under_a_store_fails_the_next_append(path, sqlite, what, how):
    store = sqlite
    await store.append("s", [draft("a")], ANY)
    victim = path.with_name(what)
    saved = victim.read_bytes()
    victim.rename(path.with_name("aside"))
    if how == "replaced":
        victim.write_bytes(saved)
    with pytest.raises(StoreUnavailable, match=f"{what}.*{how}"):
        await store.append("s", [draft("b")], ANY)
    if how == "replaced":
        victim.unlink()
    path.with_name("aside").rename(victim)
    await store.append("s", [draft("b")], ANY)


async def test_a_store_that_was_replaced_leaves_the_log_of_its_successor_alone(path, opened):
    old = await SqliteStore.open(path)
    await old.append("s", [draft("a")], ANY)
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        path.with_name(name).rename(path.with_name(f"old {name}"))
    new = await opened(SqliteStore.open(path))
    await new.append("t", [draft("b")], ANY)
    await old.close()
    assert path.with_name("store.db-wal").stat().st_size > 0
    assert [info.stream async for info in new.streams()] == ["t"]


def test_every_connection_distrusts_the_schema_and_checks_its_pages(path):
    for connection in open_file(path, durability="full", create=True, lock_timeout=5)[1][:2]:
        for setting, wanted in (
            (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
            (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
            (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
            (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
        ):
            assert connection.config(setting, -1) == wanted
        assert connection.pragma("cell_size_check") == 1
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["erase", "delete"])
async def test_an_erasure_that_is_killed_is_whole_or_not_begun_at_the_next_opening(
    tmp_path: Path, program: Callable[..., Any], what: str
) -> None:
    draw = random.Random(what)  # noqa: S311
    outcomes: list[bool] = []  # whether the content was still there
    latest = 0.03
    while len(outcomes) < some(2, 8) or all(outcomes):
        assert len(outcomes) < 16
        folder = tmp_path / str(len(outcomes))
        folder.mkdir()
        path = folder / "store.db"
        async with eventctx.open(path, receipts=False) as engine:
            context = await engine.session("s")
            await context.add_message(SECRET)
            await talk(context, 3)
            await engine.recall("foxtrot")
        child = program("erase", path, what)
        assert (await asyncio.to_thread(child.stdout.readline)).strip() == "ready"
        await asyncio.sleep(draw.uniform(0, latest))
        child.kill()
        await asyncio.to_thread(child.wait)
        async with eventctx.open(path, receipts=False) as engine:
            assert (await engine.verify_store()).ok
            names = [info.stream for info in await engine.sessions()]
            there = bool(names) and (await engine.transcript("s"))[0].message == SECRET
            assert bool(files_with(folder)) == there
            outcomes.append(there)
            latest *= 2 if there else 1  # it had not begun: this machine takes longer
            assert bool(await engine.recall("foxtrot")) == there
        assert bool(files_with(folder)) == there


@pytest.mark.slow
async def test_a_reader_in_the_way_is_said_and_the_bytes_go_when_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.db"
    async with eventctx.open(path, receipts=False, lock_timeout=0.2) as engine:
        context = await engine.session("s")
        await context.add_message(SECRET)
        reader = apsw.Connection(str(path))
        rows = reader.execute("SELECT * FROM records")
        next(rows)
        assert not (await engine.erase("s", [0])).scrubbed
        assert "stays legible" in caplog.text
        assert files_with(tmp_path)
        reader.close(True)
        await context.add_message(USER)
    assert files_with(tmp_path) == []


@pytest.mark.slow
async def test_what_a_process_could_not_scrub_is_scrubbed_at_the_next_opening(
    tmp_path: Path, program: Callable[..., Any]
) -> None:
    path = tmp_path / "store.db"
    async with eventctx.open(path, receipts=False) as engine:
        await (await engine.session("s")).add_message(SECRET)
        holder = program("hold", path)
        assert (await asyncio.to_thread(holder.stdout.readline)).strip() == "reading"
    eraser = program("erase", path, "erase")
    assert (await asyncio.to_thread(eraser.communicate))[0].split() == ["ready", "done"]
    assert files_with(tmp_path)
    holder.kill()
    await asyncio.to_thread(holder.wait)
    async with eventctx.open(path, receipts=False) as engine:
        await (await engine.session("s")).add_message(USER)
        assert files_with(tmp_path) == []
