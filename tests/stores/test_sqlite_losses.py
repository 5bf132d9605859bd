"""Losses beside a store: summed over processes, made only when needed, and never in the way."""

from __future__ import annotations

import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest

from eventctx.errors import NotAStore, StoreError, StoreTooNew, StoreUnavailable
from eventctx.log.hook_failures import Loss, LossBook
from eventctx.stores.memory_losses import MemoryLosses
from eventctx.stores.sqlite_losses import SqliteLosses
from tests.children import started


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    path.touch(mode=0o640)
    return path


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_counts_are_summed_by_handler_and_kind_and_the_last_time_stays(
    kind: str, store: Path
) -> None:
    book: LossBook = MemoryLosses() if kind == "memory" else SqliteLosses(store)
    assert book.read() == ()
    book.add([Loss("b.two", "error", 2, 50), Loss("a.one", "dropped", 1, 10)])
    book.add([Loss("b.two", "error", 3, 40), Loss("b.two", "dropped", 7, 60)])
    assert book.read() == (
        Loss("a.one", "dropped", 1, 10),
        Loss("b.two", "dropped", 7, 60),
        Loss("b.two", "error", 5, 50),
    )


def test_neither_reading_nor_adding_nothing_makes_the_file(store: Path) -> None:
    book = SqliteLosses(store)
    book.add([])
    assert book.read() == ()
    assert files(store.parent) == ["s.db"]


def test_the_file_is_as_private_as_the_store_and_is_all_there_is(store: Path) -> None:
    book = SqliteLosses(store)
    book.add([Loss("a", "error", 1, 1)])
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o640
    assert files(store.parent) == ["s.db", "s.db-losses"]
    book.path.unlink()
    assert book.read() == ()


def test_a_handlers_name_that_is_no_unicode_is_kept_in_writing(store: Path) -> None:
    book = SqliteLosses(store)
    book.add([Loss("odd\ud800", "error", 1, 1)])
    assert [one.handler for one in book.read()] == ["odd\\ud800"]


@pytest.mark.slow
def test_processes_that_write_at_once_lose_no_count(store: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from eventctx.log.hook_failures import Loss\n"
        "from eventctx.stores.sqlite_losses import SqliteLosses\n"
        "book = SqliteLosses(Path(sys.argv[1]), lock_timeout=60)\n"
        "for n in range(50): book.add([Loss('a', 'error', 1, n), Loss('b', 'dropped', 2, n)])\n"
    )
    with ExitStack() as ending:
        command = [sys.executable, "-c", program, store]
        runs = [ending.enter_context(started(command)) for _ in range(3)]
        assert [run.wait(120) for run in runs] == [0, 0, 0]
    assert [one.count for one in SqliteLosses(store).read()] == [150, 300]


@pytest.mark.parametrize("found", ["text", "folder", "foreign", "newer"])
def test_whatever_else_lies_in_its_place_is_a_typed_error_and_is_left_alone(
    store: Path, found: str
) -> None:
    book = SqliteLosses(store)
    if found == "text":
        book.path.write_bytes(b"shopping list\n" * 100)
    elif found == "folder":
        book.path.mkdir()
    else:
        connection = apsw.Connection(str(book.path))
        connection.execute("CREATE TABLE mine(x)").fetchall()
        if found == "newer":
            connection.pragma("application_id", 0x4543544C)
            connection.pragma("user_version", 99)
        connection.close()
    before = book.path.read_bytes() if book.path.is_file() else None
    expected = {"newer": StoreTooNew, "folder": StoreUnavailable}.get(found, NotAStore)
    with pytest.raises(expected):
        book.add([Loss("a", "error", 1, 1)])
    with pytest.raises(expected):
        book.read()
    assert (book.path.read_bytes() if book.path.is_file() else None) == before


def test_a_locked_file_is_a_typed_error_and_is_written_later(store: Path) -> None:
    book = SqliteLosses(store, lock_timeout=0.2)
    book.add([Loss("a", "error", 1, 1)])
    holder = apsw.Connection(str(book.path))
    holder.execute("BEGIN EXCLUSIVE").fetchall()
    with pytest.raises(StoreUnavailable, match="another program holds it"):
        book.add([Loss("a", "error", 1, 2)])
    holder.execute("ROLLBACK").fetchall()
    book.add([Loss("a", "error", 1, 2)])
    assert book.read() == (Loss("a", "error", 2, 2),)


def test_a_full_disk_is_a_typed_error_and_spoils_nothing(store: Path) -> None:
    book = SqliteLosses(store)
    book.add([Loss("a", "error", 1, 1)])
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from eventctx.errors import StoreError; from eventctx.log.hook_failures import Loss\n"
        "from eventctx.stores.sqlite_losses import SqliteLosses\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: SqliteLosses(Path(sys.argv[1])).add([Loss('b' * 9000, 'error', 1, 1)])\n"
        "except StoreError as error: print(type(error).__name__)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(store)], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["StoreFull"]
    assert book.read() == (Loss("a", "error", 1, 1),)


def test_where_no_file_can_be_made_it_is_a_typed_error(tmp_path: Path) -> None:
    book = SqliteLosses(tmp_path / "no such folder" / "s.db")
    with pytest.raises(StoreError, match="cannot be opened"):
        book.add([Loss("a", "error", 1, 1)])
