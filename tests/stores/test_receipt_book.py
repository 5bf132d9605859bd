"""The book of receipts: after a restore, and of sessions that were imported."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import eventctx
from eventctx.importers.load import import_file
from eventctx.log.store import Receipt
from eventctx.queries.verify import verify_file
from eventctx.stores.receipt_book import ReceiptBook
from eventctx.stores.sqlite_backup import fetch_copy, put_in_place
from tests.sessions import USER, model, user


async def say(path: Path, book: Path, *sessions: str) -> None:
    async with eventctx.open(path, receipts=book) as engine:
        for session in sessions:
            context = await engine.session(session)
            async with context.turn():
                await context.add_message(USER)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "state" / "book.jsonl"


async def problems(store: Path, book: Path) -> list[str]:
    async with eventctx.open(store, receipts=book) as engine:
        checked = await engine.verify_store()
        return [found.text for one in checked.sessions for found in one.problems]


async def restored(path: Path, book: Path, *, noted: bool) -> None:
    """A store with the sessions "old" and "new" that is put back to where it had "old" alone."""
    backup = path.with_name("copy.db")
    await say(path, book, "old")
    async with eventctx.open(path, receipts=book) as engine:
        assert (await engine.backup(backup)).ok
    await say(path, book, "old", "new")
    with fetch_copy(backup, path) as copy:
        checked = await verify_file(copy, {})
        put_in_place(copy, path, replace=True)
    if noted:
        ReceiptBook(book).restored(one.receipt for one in checked.sessions)


@pytest.mark.parametrize("noted", [True, False])
async def test_only_a_restore_that_nobody_noted_is_warned_of(
    path: Path, book: Path, caplog: pytest.LogCaptureFixture, noted: bool
) -> None:
    await restored(path, book, noted=noted)
    caplog.set_level(logging.WARNING)
    async with eventctx.open(path, receipts=book) as engine:
        for session in ("old", "new"):
            await engine.session(session)
        assert (await engine.verify_store()).ok == noted
    assert ("is not what it was" in caplog.text) != noted
    assert ("mismatch" in [entry.what for entry in ReceiptBook(book).entries()]) != noted


async def test_a_store_that_was_removed_is_told_once_with_what_to_do(
    path: Path, book: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await say(path, book, *[f"old-{number}" for number in range(5)])
    shutil.move(path, path.with_name("gone"))
    caplog.set_level(logging.WARNING)
    async with eventctx.open(path, receipts=book) as engine:
        for number in range(5):
            await engine.session(f"old-{number}")
        assert not (await engine.verify_store()).ok
    (said,) = [one.getMessage() for one in caplog.records if "not what it was" in one.getMessage()]
    assert "5 sessions that have receipts are not in the store" in said
    assert str(book) in said
    shutil.move(path, path.with_name("gone"))
    await say(path, book, "new")
    async with eventctx.open(path, receipts=book) as engine:
        checked = await engine.verify_store()
    assert [one.ok for one in checked.sessions] == [True]
    [problem] = checked.problems
    assert problem.startswith("5 sessions that have receipts are not in the store: 'old-0', ")
    assert "delete its receipts" in problem


async def test_receipts_since_a_restore_bind_again(path: Path, tmp_path: Path, book: Path) -> None:
    await restored(path, book, noted=True)
    at_restore = ReceiptBook(book).last()
    assert set(at_restore) == {"old"}
    await say(path, book, "old")
    assert ReceiptBook(book).last()["old"].position > at_restore["old"].position
    shutil.move(path, path.with_name("gone"))
    await say(path, tmp_path / "other.jsonl", "else")
    async with eventctx.open(path, receipts=book) as engine:
        found = await engine.verify_store()
    kinds = {problem.kind for one in found.sessions for problem in one.problems}
    assert kinds == {"missing", "receipt"}


def test_older_lines_stay_in_the_book(book: Path) -> None:
    first, second = Receipt("s", 3, b"a" * 32), Receipt("t", 1, b"b" * 32)
    writing = ReceiptBook(book)
    assert writing.last() == {}
    writing.note(first)
    writing.restored([second])
    assert writing.last() == ReceiptBook(book).last() == {"t": second}
    assert [entry.what for entry in writing.entries()] == ["receipt", "restored", "receipt"]
    assert writing.entries()[0].receipt == first
    writing.restored([])
    assert (writing.newest(), writing.last()) == (None, {})


async def import_it(store: Path, file: Path, book: Path) -> str:
    async with eventctx.open(store, receipts=book) as engine:
        (summary,) = await import_file(engine.store, file, noted=engine.note_receipt)
        return str(summary.session)


def change(store: Path, sql: str) -> None:
    """Write into a store's file as a program that is not eventctx may."""
    with closing(sqlite3.connect(store)) as db, db:
        db.execute(sql)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return transcript(tmp_path / "talk.jsonl")


def transcript(path: Path, last: str = "The other?") -> Path:
    lines = [json.dumps(one) for one in (user("Mend it."), model("Mended."), user(last))]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


async def test_the_end_of_an_import_that_is_cut_off_is_found(
    path: Path, file: Path, book: Path
) -> None:
    await import_it(path, file, book)
    assert await problems(path, book) == []
    change(path, "DELETE FROM records WHERE position >= (SELECT max(position) FROM records)")
    (found,) = await problems(path, book)
    assert "the tail was cut" in found
    change(path, "DELETE FROM records")
    change(path, "DELETE FROM streams")
    assert any("nothing is left" in found for found in await problems(path, book))


async def test_a_session_deleted_and_imported_again_is_sound(
    path: Path, file: Path, book: Path
) -> None:
    session = await import_it(path, file, book)
    async with eventctx.open(path, receipts=book) as engine:
        await engine.delete(session)
    assert await problems(path, book) == []


async def test_a_receipt_that_an_import_outdated_says_so(
    tmp_path: Path, file: Path, book: Path
) -> None:
    await import_it(tmp_path / "s.db", file, book)
    # Another machine's store has the same file, one word changed, and takes the place of ours.
    transcript(file, "The next?")
    await import_it(tmp_path / "other.db", file, tmp_path / "other.jsonl")
    (found,) = await problems(tmp_path / "other.db", book)
    assert "another program deleted it and imported its file anew" in found


async def test_what_is_left_of_a_deleted_session_keeps_its_name(
    path: Path, book: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await say(path, book, "old", "new")
    async with eventctx.open(path, receipts=book) as engine:
        await engine.delete("old")
    assert await problems(path, book) == []
    assert "is not what it was" not in caplog.text
    change(path, "UPDATE streams SET name = 'renamed' WHERE name = 'old'")
    assert any("nothing is left" in found for found in await problems(path, book))


async def test_an_old_log_of_sqlite_next_to_a_newer_file_is_found(path: Path, book: Path) -> None:
    wal, old = path.with_name("store.db-wal"), path.with_name("old")
    async with eventctx.open(path, receipts=book) as engine:
        context = await engine.session("s")
        async with context.turn():
            await context.add_message(USER)
        await asyncio.to_thread(shutil.copy, wal, old)
    await say(path, book, "s", "s")
    await asyncio.to_thread(shutil.copy, old, wal)
    assert any("the tail was cut" in found for found in await problems(path, book))
