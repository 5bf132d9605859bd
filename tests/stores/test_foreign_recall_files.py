"""Whatever lies under the name of the search index and is not ours stays as it is."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw
import pytest

import eventctx
from eventctx.search.sqlite_index_file import APPLICATION_ID, Found, look, make_file
from tests.sessions import USER

OUR_ID = f"PRAGMA application_id={APPLICATION_ID}"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX files")


def database(place: Path, then: str = "SELECT 1") -> None:
    with closing(sqlite3.connect(place)) as other, other:
        other.execute("CREATE TABLE bookmarks(url)")
        other.execute("INSERT INTO bookmarks VALUES('https://example.org')")
        other.commit()
        other.execute(then)


def link(place: Path) -> None:
    target = place.with_name("elsewhere.db")
    target.write_text("somebody's")
    place.symlink_to(target)


def folder(place: Path) -> None:
    place.mkdir()
    (place / "notes").write_text("somebody's")


FOREIGN: dict[str, Callable[[Path], object]] = {
    "a database": database,
    "a database with our application id": partial(database, then=OUR_ID),
    "a database in write-ahead mode": partial(database, then="PRAGMA journal_mode=WAL"),
    "a text": lambda place: place.write_text("just some notes " * 500),
    "a short text": lambda place: place.write_text("SQLite format 3"),
    "an empty file": Path.touch,
    "a folder": folder,
    "a pipe": os.mkfifo,
    "a link": link,
    "a link to nothing": lambda place: place.symlink_to(place.with_name("nowhere.db")),
}


def recall_files(folder: Path) -> list[str]:
    return [one.name for one in folder.glob("*recall*")]


def state(folder: Path) -> dict[str, object]:
    """Everything in a folder besides the store: kind, rights and bytes."""
    found: dict[str, object] = {}
    for one in folder.rglob("*"):
        if not one.name.startswith("store.db") or "recall" in one.name:
            known = one.lstat()
            content = one.read_bytes() if stat.S_ISREG(known.st_mode) else None
            found[one.name] = (known.st_mode, known.st_ino, content)
    return found


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[eventctx.Engine]:
    async with eventctx.open(tmp_path / "store.db") as engine:
        await (await engine.session("s")).add_message(USER)
        yield engine


@pytest.mark.parametrize("name", ["store.db.eventctx-recall", "store.db-recall"])
@pytest.mark.parametrize("kind", FOREIGN)
async def test_a_foreign_file_is_left_alone_and_the_search_works(
    tmp_path: Path, engine: eventctx.Engine, caplog: pytest.LogCaptureFixture, kind: str, name: str
) -> None:
    if (kind, name) == ("a database with our application id", "store.db-recall"):
        pytest.skip("under the old name that is all by which ours is known")
    FOREIGN[kind](tmp_path / name)
    before = state(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert len(await engine.recall("hello")) == 1
    await engine.close()
    after = state(tmp_path)
    said = [one.getMessage() for one in caplog.records if one.name == "eventctx.search"]
    if name == "store.db-recall":
        assert (after.pop("store.db.eventctx-recall") is not None, said) == (True, [])
    else:
        assert [name in one for one in said] == [True]
    assert after == before


async def test_an_index_of_an_earlier_release_is_removed_when_the_new_one_is_made(
    tmp_path: Path, engine: eventctx.Engine
) -> None:
    old = tmp_path / "store.db-recall"
    with closing(sqlite3.connect(old)) as other, other:
        other.execute("CREATE TABLE words(secret)")
        other.execute(OUR_ID)
    (tmp_path / "store.db-recall-journal").touch()
    assert len(await engine.recall("hello")) == 1
    assert recall_files(tmp_path) == ["store.db.eventctx-recall"]


async def test_a_file_in_the_place_of_ours_is_left_alone(
    tmp_path: Path, engine: eventctx.Engine
) -> None:
    assert len(await engine.recall("hello")) == 1
    place = tmp_path / "store.db.eventctx-recall"
    place.write_text("just some notes " * 500)
    await (await engine.session("s")).add_message(USER)
    assert len(await engine.recall("hello")) == 2
    assert place.read_text() == "just some notes " * 500


def test_looking_at_a_file_keeps_the_locks_that_this_process_has_on_it(tmp_path: Path) -> None:
    place = tmp_path / "index"
    make_file(place, 1, 0o600)
    holder = apsw.Connection(str(place))
    holder.execute("BEGIN EXCLUSIVE").fetchall()
    assert look(place) is Found.OURS
    text = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    done = subprocess.run(
        [sys.executable, "-c", text, str(place)], capture_output=True, text=True, check=False
    )
    assert "sqlite3.OperationalError" in done.stderr
    holder.close(True)
