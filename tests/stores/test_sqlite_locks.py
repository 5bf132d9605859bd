"""Locks of a file: processes that wait for each other, erasures that are killed or in the way."""

from __future__ import annotations

import asyncio
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
from eventctx.errors import StoreUnavailable
from eventctx.log.store import ANY
from eventctx.stores.sqlite import SqliteStore
from eventctx.stores.sqlite_schema import open_file
from eventctx.testing.store_contract.drafts import gather
from eventctx.testing.store_contract.drafts import make_draft as draft
from tests.how_much import some
from tests.session.test_erasing import SECRET, files_with, talk
from tests.sessions import USER

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
        last = eventctx.Receipt.parse(acknowledged[-1])
        assert (await engine.verify("kept", last)).ok


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


async def test_a_store_that_was_replaced_leaves_the_log_of_its_successor_alone(path):
    old = await SqliteStore.open(path)
    await old.append("s", [draft("a")], ANY)
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        path.with_name(name).rename(path.with_name(f"old {name}"))
    new = await SqliteStore.open(path)
    await new.append("t", [draft("b")], ANY)
    await old.close()
    assert path.with_name("store.db-wal").stat().st_size > 0
    assert [info.stream async for info in new.streams()] == ["t"]
    await new.close()


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
        context = await engine.session("s")
        await context.add_message(SECRET)
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
