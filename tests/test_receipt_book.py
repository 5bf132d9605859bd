"""The book of receipts after a restore: what stood before it binds nobody any more."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import eventctx
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
