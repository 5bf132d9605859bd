"""A restore puts a whole store in the place of another, which nobody uses and which is kept."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from eventctx.errors import InvalidSetting, NotAStore, StoreUnavailable
from eventctx.log.store import ANY
from eventctx.queries.verify import verify
from eventctx.stores import sqlite_backup
from eventctx.stores.sqlite import SqliteStore
from eventctx.stores.sqlite_backup import fetch_copy, put_in_place
from eventctx.testing.store_contract.drafts import make_draft as draft
from tests.stores.test_sqlite_faults import of_another_program


async def make(path: Path, *texts: str) -> None:
    store = await SqliteStore.open(path)
    for text in texts:
        await store.append("s", [draft(text)], ANY)
    await store.close()


async def count(path: Path) -> int:
    """The records of the session "s", which are verified in a store that can be written."""
    store = await SqliteStore.open(path, create=False)
    checked = await verify(store, "s", facts=False)
    await store.save_checkpoint("seen", 1)
    await store.close()
    assert checked.ok
    return checked.records


def restore(backup: Path, store: Path, *, replace: bool = True) -> Path | None:
    with fetch_copy(backup, store) as copy:
        return put_in_place(copy, store, replace=replace)


def kept(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.before-restore-*"))


@pytest.fixture
async def backup(tmp_path: Path) -> Path:
    path = tmp_path / "backups" / "copy.db"
    path.parent.mkdir()
    await make(path, "a")
    return path


@pytest.fixture
async def store(path: Path) -> Path:
    await make(path, "a", "b", "c")
    return path


async def test_a_backup_becomes_a_store_where_there_is_none(backup, path):
    before = backup.read_bytes(), backup.stat().st_mtime_ns
    assert restore(backup, path, replace=False) is None
    assert await count(path) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (backup.read_bytes(), backup.stat().st_mtime_ns) == before
    assert [one.name for one in backup.parent.iterdir()] == [backup.name]
    assert sorted(one.name for one in path.parent.iterdir()) == ["backups", path.name]


async def test_the_old_store_is_kept_whole_beside_the_new_one_that_was_asked_for(backup, store):
    with pytest.raises(InvalidSetting, match="not replaced"):
        restore(backup, store, replace=False)
    assert (await count(store), kept(store)) == (3, [])
    store.chmod(0o640)
    aside = restore(backup, store)
    assert re.fullmatch(r"store\.db\.before-restore-\d{8}T\d{6}", aside.name)
    assert (await count(store), await count(aside)) == (1, 3)
    assert stat.S_IMODE(store.stat().st_mode) == 0o640
    assert aside.stat().st_nlink == store.stat().st_nlink == 1
    assert sorted(one.name for one in store.parent.iterdir()) == ["backups", store.name, aside.name]


async def test_what_only_the_log_of_a_killed_process_has_is_restored(
    backup, path, tmp_path, program
):
    writer = program("write", path)
    lines = [await asyncio.to_thread(writer.stdout.readline) for _ in range(20)]
    writer.kill()
    await asyncio.to_thread(writer.wait)
    assert path.with_name("store.db-wal").stat().st_size
    for name in ("live.db", "live.db-wal"):
        shutil.copy(path.with_name(name.replace("live", "store")), tmp_path / name)
    aside = restore(backup, path)
    assert not path.with_name("store.db-wal").exists()
    new = tmp_path / "new.db"
    assert restore(tmp_path / "live.db", new) is None
    for one in (aside, new):
        held = await SqliteStore.open(one, create=False)
        assert (await held.head("s")).head >= 3 * len(lines) - 1
        assert (await verify(held, "s", facts=False)).ok
        await held.close()
    assert await count(path) == 1


async def test_a_store_that_this_or_another_process_has_open_is_left_alone(backup, store, program):
    mine = await SqliteStore.open(store)
    with pytest.raises(StoreUnavailable, match="has it open"):
        restore(backup, store)
    await mine.append("s", [draft("d")], ANY)
    await mine.close()
    assert await count(store) == 4
    other = program("open_and_append", store)
    for _ in range(2):
        said = await asyncio.to_thread(other.stdout.readline)
    assert said == "opened\n"
    with pytest.raises(StoreUnavailable, match="has it open"):
        restore(backup, store)
    whole, damaged = store.read_bytes(), b"overwritten" * 1000
    with pytest.raises(StoreUnavailable, match="has it open"), store.open("r+b") as file:
        file.write(damaged)
        file.flush()
        restore(backup, store)
    assert store.read_bytes().startswith(damaged)
    with store.open("r+b") as file:
        file.write(whole)
    assert kept(store) == []
    print("append", file=other.stdin, flush=True)
    assert (await asyncio.to_thread(other.stdout.readline)).startswith("other@0:")
    await asyncio.to_thread(other.communicate)
    assert restore(backup, store) is not None
    assert await count(store) == 1


async def test_who_waits_for_the_old_store_cannot_write_it(backup, store, program, monkeypatch):
    """The program has opened the old file, and gets its lock only when it has lost its name."""
    waiting = []

    def keep_aside(*paths: Path) -> None:
        other = program("open_and_append", store)
        waiting.append(other)
        assert other.stdout.readline() == "opening\n"
        while os.fspath(store.resolve()) not in opened_by(other.pid):
            assert other.poll() is None
        real(*paths)

    real = sqlite_backup._keep_aside
    monkeypatch.setattr(sqlite_backup, "_keep_aside", keep_aside)
    aside = await asyncio.to_thread(restore, backup, store)
    said = await asyncio.to_thread(waiting[0].stdout.readline)
    assert said.startswith("StoreUnavailable"), said
    assert "another one was put in its place" in said
    assert (await count(store), await count(aside)) == (1, 3)


def opened_by(pid: int) -> set[str]:
    found = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.add(os.fspath(one.readlink()))
    return found


@pytest.mark.slow
async def test_a_restore_that_is_killed_at_any_step_loses_nothing(backup, store, program):
    for step in range(100):
        child = program("restore", backup, store, step)
        output, errors = await asyncio.to_thread(child.communicate)
        held = [await count(one) for one in (store, *kept(store))]
        if output:
            assert (output, child.returncode, step > 5) == ("done\n", 0, True)
            assert held == [1, 3]
            assert store.stat().st_nlink == 1
            return
        assert (child.returncode, errors) == (-signal.SIGKILL, "")
        assert held in ([3], [3, 3], [1, 3])
        if held[0] == 1:
            kept(store)[0].replace(store)
    pytest.fail("there is no end")


async def test_the_second_name_that_a_killed_restore_left_goes_with_the_next(backup, store):
    store.with_name("store.db.before-restore-20200101T000000").hardlink_to(store)
    aside = restore(backup, store)
    assert kept(store) == [aside]
    assert (await count(store), await count(aside)) == (1, 3)


async def test_a_damaged_store_is_replaced_and_kept_with_its_log(backup, path):
    path.write_bytes(b"overwritten" * 1000)
    path.with_name("store.db-wal").write_bytes(b"the log" * 1000)
    aside = restore(backup, path)
    assert await count(path) == 1
    log = aside.with_name(aside.name + "-wal")
    assert (aside.read_bytes(), log.read_bytes()) == (b"overwritten" * 1000, b"the log" * 1000)
    assert sorted(path.parent.glob("store.db*")) == [path, aside, log]


@pytest.mark.parametrize("what", ["a folder", "another program's"])
async def test_what_is_no_store_is_not_replaced(backup, path, what):
    if what == "a folder":
        path.mkdir()
    else:
        of_another_program(path)
    with pytest.raises(NotAStore, match=what):
        restore(backup, path)
    assert kept(path) == []


@pytest.mark.parametrize("content", [b"", b"notes", b"notes" * 1000])
async def test_what_is_no_backup_changes_nothing(tmp_path, store, content):
    other = tmp_path / "other.db"
    other.write_bytes(content)
    with pytest.raises((NotAStore, StoreUnavailable)):
        restore(other, store)
    assert await count(store) == 3
    assert sorted(one.name for one in store.parent.iterdir()) == ["other.db", store.name]


async def test_the_log_of_a_store_that_was_removed_is_in_the_way(backup, path):
    path.with_name("store.db-wal").write_bytes(b"x" * 100)
    with pytest.raises(InvalidSetting, match="another database"):
        restore(backup, path)
    assert not path.exists()


async def test_a_link_to_the_store_stays_a_link(backup, store, tmp_path):
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(store)
    aside = restore(backup, link)
    assert link.is_symlink()
    assert aside.parent == store.parent
    assert await count(link) == 1
