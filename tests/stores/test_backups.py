"""An engine's backup is verified whole, and compared with the receipts."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import eventctx
from eventctx.errors import InvalidSetting
from eventctx.log.store import Receipt


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder / "copy.db"


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
