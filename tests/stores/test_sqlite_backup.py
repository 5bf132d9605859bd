"""A backup is the store as it was at one moment, or nothing at all."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import threading
import time
from pathlib import Path

import apsw
import pytest

import eventctx
from eventctx.errors import InvalidSetting, StoreFull, StoreReadOnly, StoreUnavailable
from eventctx.log.record import Draft, make_body
from eventctx.log.store import ANY, NO_STREAM, Receipt
from eventctx.queries.verify import verify
from eventctx.stores.sqlite import SqliteStore
from eventctx.stores.sqlite_backup import COMPANIONS, back_up
from eventctx.stores.sqlite_errors import refused_by_system
from eventctx.testing.store_contract.drafts import gather
from eventctx.testing.store_contract.drafts import make_draft as draft

STEP = 4096 * 1024
"""Bytes of one step of a backup."""


def large() -> Draft:
    """A record that takes half a step."""
    return Draft(
        os.urandom(16), "test", 1, 0, b"{}", (make_body(os.urandom(STEP // 2), b"", os.urandom),)
    )


async def make_large(path: Path) -> None:
    """A store of five steps, and the session "s"."""
    store = await SqliteStore.open(path)
    for _ in range(10):
        await store.append("s", [large()], ANY)
    await store.close()


async def records_of(path: Path, stream: str) -> list[bytes]:
    store = await SqliteStore.open(path, create=False)
    digests = [record.digest async for record in store.read(stream)]
    checked = await verify(store, stream, facts=False)
    await store.close()
    assert checked.ok
    return digests


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def begun(folder: Path) -> None:
    end = time.monotonic() + 60
    while not names(folder):
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder / "copy.db"


@pytest.fixture
async def store(sqlite) -> SqliteStore:
    await sqlite.append("s", [draft("a", "b")], NO_STREAM)
    return sqlite


@pytest.mark.parametrize("links", [True, False])
async def test_a_backup_is_a_private_store_that_holds_the_same(store, target, monkeypatch, links):
    def refuse(*_args, **_options):
        raise PermissionError(1, "Operation not permitted")

    if not links:  # as on a file system without any
        monkeypatch.setattr(os, "link", refuse)
    await store.append("s", [draft("c")], 0)
    await store.fork("s", 0, "child", draft("d"))
    await store.save_checkpoint("log", 1)
    previous = os.umask(0)
    try:
        await store.backup(target)
    finally:
        os.umask(previous)
    found = target.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_nlink) == (0o600, 1)
    assert names(target.parent) == [target.name]
    copy = await SqliteStore.open(target, create=False)
    for stream in ("s", "child"):
        assert await gather(copy.read(stream)) == await gather(store.read(stream))
    assert await copy.load_checkpoint("log") == 1
    await copy.append("s", [draft("later")], 1)
    assert (await store.head("s")).head == 1
    await copy.close()


@pytest.mark.slow
async def test_writes_and_reads_go_on_in_the_middle_of_a_backup_and_are_not_in_it(path, target):
    await make_large(path)
    store = await SqliteStore.open(path)
    before = [record.digest async for record in store.read("s")]
    middle, go_on = threading.Event(), threading.Event()
    steps = 0

    def stopped() -> bool:
        nonlocal steps
        steps += 1
        if steps == 3:
            middle.set()
            assert go_on.wait(60)
        return False

    copying = asyncio.create_task(asyncio.to_thread(back_up, store._file, target, stopped))
    assert await asyncio.to_thread(middle.wait, 60)
    for number in range(30):
        await store.append("s", [large() if number % 10 == 0 else draft("small")], ANY)
    assert len([record async for record in store.read("s")]) == len(before) + 30
    assert not target.exists()
    go_on.set()
    await copying
    assert steps < 10, "the copy was begun anew"
    assert await records_of(target, "s") == before
    await store.close()


@pytest.mark.slow
async def test_a_killed_backup_leaves_no_target_or_a_whole_one(path, target, program, store):
    await store.close()
    whole = await records_of(path, "s")
    for step in range(100):
        child = program("back_up", path, target, step)
        output, errors = await asyncio.to_thread(child.communicate)
        if output:
            assert (output, child.returncode, step > 3) == ("done\n", 0, True)
            break
        assert (child.returncode, errors) == (-signal.SIGKILL, "")
        if target.exists():
            assert await records_of(target, "s") == whole
            target.unlink()
        assert not any(target.with_name(target.name + one).exists() for one in COMPANIONS)
    assert await records_of(target, "s") == whole
    assert await records_of(path, "s") == whole


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs limits of file sizes")
async def test_a_full_disk_leaves_nothing_and_the_next_backup_works(path, target, program):
    await make_large(path)
    child = program("back_up_with_a_limit", path, target, 2 * STEP)
    output, errors = await asyncio.to_thread(child.communicate)
    assert errors == ""
    full, done = output.splitlines()
    assert full.startswith(f"full {target}: no space left")
    assert done == "backed up"
    assert names(target.parent) == [target.name]


async def test_a_cancelled_backup_leaves_nothing(path, target, opened):
    await make_large(path)
    store = await opened(SqliteStore.open(path))
    backup = asyncio.create_task(store.backup(target))
    await asyncio.to_thread(begun, target.parent)
    backup.cancel()
    with pytest.raises(asyncio.CancelledError):
        await backup
    assert names(target.parent) in ([], [target.name])
    assert not store._file._connections[2:]


@pytest.mark.slow
async def test_closing_a_store_lets_its_backup_finish(path, target):
    await make_large(path)
    store = await SqliteStore.open(path)
    backup = asyncio.create_task(store.backup(target))
    await asyncio.to_thread(begun, target.parent)
    await store.close()
    await backup
    assert len(await records_of(target, "s")) == 10
    assert names(path.parent) == ["backups", path.name]
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.backup(target.with_name("another.db"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Path.touch, "there is one at"),
        (Path.mkdir, "the folder"),
        (lambda one: one.symlink_to("nowhere"), "there is one at"),
        (lambda one: one.with_name("copy.db-wal").touch(), "another database"),
        (lambda one: one.with_name("copy.db-journal").touch(), "another database"),
    ],
    ids=["a file", "a folder", "a link", "a log", "a journal"],
)
async def test_what_is_there_already_stays_and_a_place_that_cannot_be_written_is_named(
    path, target, store, make, words
):
    make(target)
    before = names(target.parent)
    with pytest.raises(InvalidSetting, match=words):
        await store.backup(target)
    assert names(target.parent) == before
    with pytest.raises(InvalidSetting, match="there is one at"):
        await store.backup(path)
    for where in ("no folder/copy.db", "x" * 300, "store.db/copy.db"):
        with pytest.raises(StoreUnavailable, match="cannot be written"):
            await store.backup(path.parent / where)
    assert await store.head("s") is not None


async def test_a_target_that_appears_meanwhile_is_not_replaced(store, target):
    def stopped() -> bool:
        target.write_text("somebody else's")
        return False

    with pytest.raises(InvalidSetting, match="there is one at"):
        await asyncio.to_thread(back_up, store._file, target, stopped)
    assert target.read_text() == "somebody else's"
    assert names(target.parent) == [target.name]


async def test_a_store_whose_file_was_replaced_is_not_backed_up(path, target, store):
    path.rename(path.with_name("aside"))
    path.write_bytes(path.with_name("aside").read_bytes())
    with pytest.raises(StoreUnavailable, match="replaced"):
        await store.backup(target)
    assert names(target.parent) == []


async def test_an_engines_backup_is_verified_with_the_receipts(path, target, tmp_path):
    book = tmp_path / "book.jsonl"
    async with eventctx.open(path, receipts=book) as engine:
        context = await engine.session("s")
        async with context.turn():
            await context.add_message({"role": "user", "content": "hello"})
        await context.add_message({"role": "user", "content": "x" * 3_000_000})
        await engine.fork("s", 1, "child")
        checked = await engine.backup(target)
        assert checked.ok
        assert {one.stream for one in checked.sessions} == {"s", "child"}
        assert names(target.parent) == [target.name]
        engine._receipts.book.note(Receipt("s", 0, b"\0" * 32))
        found = await engine.backup(target.with_name("second.db"))
        assert [problem.kind for one in found.sessions for problem in one.problems] == ["receipt"]
        assert target.with_name("second.db").exists()


async def test_a_store_in_memory_has_no_backup(target):
    async with eventctx.open() as engine:
        with pytest.raises(InvalidSetting, match="in memory"):
            await engine.backup(target)
    assert names(target.parent) == []


async def test_damage_is_copied_and_reported(path, target):
    async with eventctx.open(path, receipts=False) as engine:
        await (await engine.session("s")).add_message({"role": "user", "content": "hello"})
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE records SET data = cast('{}' AS BLOB) WHERE data IS NOT NULL"
    ).fetchall()
    connection.close()
    async with eventctx.open(path, receipts=False) as engine:
        checked = await engine.backup(target)
    assert not checked.ok
    assert target.exists()


@pytest.mark.parametrize(
    ("number", "kind"),
    [*((number, StoreReadOnly) for number in (13, 1, 30)), (28, StoreFull), (27, StoreFull)],
)
def test_what_the_system_refuses_has_a_kind(number, kind):
    assert type(refused_by_system(OSError(number, "no"), Path("x"))) is kind
