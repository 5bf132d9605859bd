"""The book of receipts: after a restore, and of sessions that were imported."""

from __future__ import annotations

import asyncio
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


async def say(path: Path, book: Path, *sessions: str) -> None:
    async with eventctx.open(path, receipts=book) as engine:
        for session in sessions:
            context = await engine.session(session)
            async with context.turn():
                await context.add_message({"role": "user", "content": "hello"})


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "state" / "book.jsonl"


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


async def test_after_a_restore_on_purpose_nothing_is_warned_of(
    tmp_path: Path, book: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    await restored(path, book, noted=True)
    caplog.set_level(logging.WARNING)
    async with eventctx.open(path, receipts=book) as engine:
        await engine.session("old")
        await engine.session("new")
        assert (await engine.verify_store()).ok
    assert "is not what it was" not in caplog.text
    assert [entry.what for entry in ReceiptBook(book).entries()].count("mismatch") == 0


async def test_a_restore_that_nobody_noted_is_warned_of(
    tmp_path: Path, book: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    await restored(path, book, noted=False)
    caplog.set_level(logging.WARNING)
    async with eventctx.open(path, receipts=book) as engine:
        assert "is not what it was" in caplog.text
        assert not (await engine.verify_store()).ok


async def test_a_store_that_was_removed_is_told_once_with_what_to_do(
    tmp_path: Path, book: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    await say(path, book, *[f"old-{number}" for number in range(5)])
    path.unlink()
    caplog.set_level(logging.WARNING)
    async with eventctx.open(path, receipts=book) as engine:
        for number in range(5):
            await engine.session(f"old-{number}")
        checked = await engine.verify_store()
    warnings = [one.getMessage() for one in caplog.records if "not what it was" in one.getMessage()]
    assert len(warnings) == 1
    assert "5 sessions that have receipts are not in the store" in warnings[0]
    assert str(book) in warnings[0]
    assert not checked.ok


async def test_receipts_since_a_restore_bind_again(tmp_path: Path, book: Path) -> None:
    path = tmp_path / "s.db"
    await restored(path, book, noted=True)
    at_restore = ReceiptBook(book).last()
    assert set(at_restore) == {"old"}
    await say(path, book, "old")
    assert ReceiptBook(book).last()["old"].position > at_restore["old"].position
    path.unlink()
    await say(path, tmp_path / "other.jsonl", "else")
    async with eventctx.open(path, receipts=book) as engine:
        found = await engine.verify_store()
    assert {problem.kind for one in found.sessions for problem in one.problems} == {
        "missing",
        "receipt",
    }


def test_older_lines_stay_in_the_book(book: Path) -> None:
    first, second = Receipt("s", 3, b"a" * 32), Receipt("t", 1, b"b" * 32)
    writing = ReceiptBook(book)
    assert writing.last() == {}
    writing.note(first)
    writing.restored([second])
    assert writing.last() == ReceiptBook(book).last() == {"t": second}
    assert [entry.what for entry in writing.entries()] == ["receipt", "restored", "receipt"]
    assert writing.entries()[0].receipt == first


def test_a_restore_to_an_empty_store_leaves_no_newest_receipt(book: Path) -> None:
    writing = ReceiptBook(book)
    writing.note(Receipt("s", 3, b"a" * 32))
    writing.restored([])
    assert writing.newest() is None
    assert writing.last() == {}


# -- what other programs wrote -------------------------------------------------------------------

LINES = ['{"role": "user", "content": "Mend it."}', '{"role": "assistant", "content": "Mended."}',
         '{"role": "user", "content": "And the other?"}']  # fmt: skip


async def import_it(store: Path, file: Path, book: Path) -> str:
    async with eventctx.open(store, receipts=book) as engine:
        (summary,) = await import_file(engine.store, file, noted=engine.note_receipt)
        return str(summary.session)


def change(store: Path, sql: str) -> None:
    """Write into a store's file as a program that is not eventctx may."""
    with closing(sqlite3.connect(store)) as db, db:
        db.execute(sql)


async def problems(store: Path, book: Path) -> list[str]:
    async with eventctx.open(store, receipts=book) as engine:
        checked = await engine.verify_store()
        return [found.text for one in checked.sessions for found in one.problems]


def change_file(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


async def test_the_end_of_an_imported_session_that_is_cut_off_is_found(
    tmp_path: Path, file: Path, book: Path
) -> None:
    store = tmp_path / "s.db"
    await import_it(store, file, book)
    assert await problems(store, book) == []
    change(store, "DELETE FROM records WHERE position >= (SELECT max(position) FROM records)")
    (found,) = await problems(store, book)
    assert "the tail was cut" in found


async def test_an_imported_session_that_is_gone_is_found(
    tmp_path: Path, file: Path, book: Path
) -> None:
    store = tmp_path / "s.db"
    await import_it(store, file, book)
    change(store, "DELETE FROM records")
    change(store, "DELETE FROM streams")
    assert any("nothing is left" in found for found in await problems(store, book))


async def test_a_session_that_was_deleted_on_purpose_and_imported_again_is_sound(
    tmp_path: Path, file: Path, book: Path
) -> None:
    store = tmp_path / "s.db"
    session = await import_it(store, file, book)
    async with eventctx.open(store, receipts=book) as engine:
        await engine.delete(session)
    assert await problems(store, book) == []


async def test_a_receipt_that_another_programs_import_outdated_says_so(
    tmp_path: Path, file: Path, book: Path
) -> None:
    await import_it(tmp_path / "s.db", file, book)
    # Another machine's store has the same file, one word changed, and takes the place of ours.
    change_file(file, "\n".join([*LINES[:2], LINES[2].replace("other", "next")]))
    await import_it(tmp_path / "other.db", file, tmp_path / "other.jsonl")
    (found,) = await problems(tmp_path / "other.db", book)
    assert "another program deleted it and imported its file anew" in found


async def test_what_is_left_of_a_deleted_session_keeps_its_name(
    tmp_path: Path, book: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.db"
    await say(path, book, "old", "new")
    async with eventctx.open(path, receipts=book) as engine:
        await engine.delete("old")
    assert await problems(path, book) == []
    assert "is not what it was" not in caplog.text
    change(path, "UPDATE streams SET name = 'renamed' WHERE name = 'old'")
    assert any("nothing is left" in found for found in await problems(path, book))


async def test_an_old_log_of_sqlite_next_to_a_newer_file_is_found(
    tmp_path: Path, book: Path
) -> None:
    path = tmp_path / "s.db"
    wal, old = tmp_path / "s.db-wal", tmp_path / "old"
    async with eventctx.open(path, receipts=book) as engine:
        context = await engine.session("s")
        async with context.turn():
            await context.add_message({"role": "user", "content": "first"})
        await asyncio.to_thread(shutil.copy, wal, old)
    await say(path, book, "s", "s")
    await asyncio.to_thread(shutil.copy, old, wal)
    assert any("the tail was cut" in found for found in await problems(path, book))


async def test_verify_has_one_line_for_the_sessions_of_a_removed_store(
    tmp_path: Path, book: Path
) -> None:
    path = tmp_path / "s.db"
    await say(path, book, *[f"old-{number}" for number in range(5)])
    path.unlink()
    await say(path, book, "new")
    async with eventctx.open(path, receipts=book) as engine:
        checked = await engine.verify_store()
    assert [one.ok for one in checked.sessions] == [True]
    [problem] = checked.problems
    assert problem.startswith("5 sessions that have receipts are not in the store: 'old-0', ")
    assert "delete its receipts" in problem
