"""SqliteStore and the file it is given: what is refused, what is survived, what is left behind."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from eventctx import errors
from eventctx.log.record import Body
from eventctx.log.store import ANY, NO_STREAM, Address, Snapshot
from eventctx.stores.sqlite import SqliteStore
from eventctx.stores.sqlite_schema import SCHEMA_VERSION
from eventctx.testing.store_contract.drafts import check_chain, gather
from eventctx.testing.store_contract.drafts import make_draft as draft
from tests.stores.conftest import HERE
from tests.stores.test_sqlite_recall import added, numbers, sidecar


async def make_store(path, *texts):
    store = await SqliteStore.open(path)
    await store.append("s", [draft(text) for text in texts or ("a", "b")], NO_STREAM)
    await store.close()


async def test_a_store_holds_after_reopening_what_it_held_before(path, opened):
    store = await SqliteStore.open(path)
    appended = await store.append("s", [draft("a", "b"), draft()], NO_STREAM)
    await store.save_checkpoint("log", 4)
    store.save_snapshot("s", "view", Snapshot(1, appended.receipt.digest, 1, b"x"))
    await store.close()
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name]
    store = await opened(SqliteStore.open(path, create=False))
    assert tuple(await gather(store.read("s"))) == appended.records
    assert await store.load_checkpoint("log") == 4
    assert await store.load_snapshot("s", "view") is not None
    assert (await store.append("s", [draft("c")], 1)).records[0].global_position == 2


async def test_several_openings_of_a_new_file_at_once_agree(path):
    stores = await asyncio.gather(*(SqliteStore.open(path) for _ in range(6)))
    await asyncio.gather(*(s.append("s", [draft()], ANY) for s in stores))
    assert len(await gather(stores[0].read("s"))) == 6
    for store in stores:
        await store.close()


async def test_a_relative_or_odd_path_is_a_file_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", "file:x?mode=memory", "ü #%20.db"):
        await make_store(name)
        assert (tmp_path / name).is_file()


def of_another_program(path):
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE bookmarks(url)")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: p.write_bytes(b"x"), "expected an eventctx database"),
        (lambda p: p.write_bytes(b"text, longer than a header" * 99), "expected an eventctx"),
        (lambda p: p.write_bytes(b"SQLite format 2\0" * 500), "expected an eventctx database"),
        (of_another_program, "another program"),
        (Path.mkdir, "a folder"),
        (os.mkfifo, "a pipe"),
        (lambda p: p.symlink_to("/dev/null"), "a pipe"),
    ],
    ids=["short", "text", "old SQLite", "another's", "folder", "pipe", "device"],
)
async def test_what_is_no_store_is_refused_at_once_and_left_alone(path, make, said):
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(errors.NotAStore, match=said) as caught:
        await asyncio.wait_for(SqliteStore.open(path), 60)
    assert str(path) in str(caught.value)
    assert before is None or path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


async def test_a_later_release_and_garbage_behind_a_sqlite_header_are_refused(path):
    await make_store(path)
    with closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    with pytest.raises(errors.StoreTooNew, match=f"found {SCHEMA_VERSION + 1}.*upgrade"):
        await SqliteStore.open(path)
    content = path.read_bytes()
    path.write_bytes(content[:16] + os.urandom(len(content) - 16))
    with pytest.raises(errors.StoreError):
        await SqliteStore.open(path)


async def test_a_truncated_file_is_a_typed_error_not_a_short_read(path):
    await make_store(path, *(str(n) * 900 for n in range(200)))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size // 2 // 4096 * 4096)
    with pytest.raises((errors.StoreUnavailable, errors.LogCorrupted), match="damaged"):
        store = await SqliteStore.open(path)
        try:
            await gather(store.read("s"))
        finally:
            await store.close()


async def test_a_missing_file_or_folder_is_said_so(tmp_path):
    with pytest.raises(errors.StoreUnavailable, match="found nothing"):
        await SqliteStore.open(tmp_path / "none.db", create=False)
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(errors.StoreUnavailable, match="folder does not exist"):
        await SqliteStore.open(tmp_path / "none" / "store.db")
    with pytest.raises(errors.InvalidSetting, match="'full', 'normal'"):
        await SqliteStore.open(tmp_path / "store.db", durability="off")


async def test_a_lock_held_by_another_program_is_waited_for_and_then_reported(path, opened):
    store = await opened(SqliteStore.open(path, lock_timeout=0.2))
    await store.append("s", [draft("a"), draft("b")], NO_STREAM)
    other = apsw.Connection(str(path))
    other.execute("BEGIN EXCLUSIVE")
    first, second = (store.append("s", [draft("c")], 1) for _ in range(2))
    for ack in (first, second, store.save_checkpoint("c", 1)):
        with pytest.raises(errors.StoreUnavailable, match="another program holds it"):
            await ack
    assert len(await gather(store.read("s"))) == 2
    other.execute("COMMIT")
    assert (await store.append("s", [draft("c")], 1)).receipt.position == 2
    other.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


READ_ONLY_PROGRAM = """
import asyncio, os, sys
from pathlib import Path
import concurrent.futures.thread, urllib.parse  # now: out of reach after setuid
from eventctx.errors import StoreReadOnly
from eventctx.log.record import Draft
from eventctx.log.store import Address, ANY, Snapshot
from eventctx.search.recall import Recall
from eventctx.search.sqlite_index import SqliteTextIndex
from eventctx.stores.sqlite import SqliteStore

async def main():
    store = await SqliteStore.open(sys.argv[1])
    index = SqliteTextIndex(Path(sys.argv[1]))
    recall = Recall(store, index)
    print("found", len(await recall.search("hello")), "in memory", index.path is None)
    await recall.close()
    print(len([r async for r in store.read("s")]), (await store.head("s")).head)
    draft = Draft(bytes(16), "test", 1, 0, b"{}")
    store.save_snapshot("s", "view", Snapshot(0, bytes(32), 1, b""))
    for write in (
        store.append("s", [draft], ANY), store.fork("s", 0, "f", draft),
        store.erase({"s": {Address(0): b""}}), store.save_checkpoint("c", 1),
    ):
        try:
            await write
            print("written")
        except StoreReadOnly as error:
            print("refused", "read-only" in str(error))
    await store.close()

if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)  # for root every file is writable
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX rights")
@pytest.mark.parametrize("there", ["the store", "a writer", "an old index", "a damaged index"])
async def test_a_read_only_file_is_read_and_searched_and_only_writing_is_refused(
    open_folder, there, opened
):
    path = open_folder / "store.db"
    store = await opened(SqliteStore.open(path))
    await added(store, "s", "hello")
    if there.endswith("index"):
        await numbers(store, path, "hello")
    if there == "a damaged index":
        place = sidecar(path)
        place.write_bytes(place.read_bytes()[:100] + b"x" * 9999)
    await added(store, "s", "hello again")
    if there != "a writer":
        await store.close()
    for file in open_folder.iterdir():
        file.chmod(0o444)
    open_folder.chmod(0o555)
    command = [sys.executable, "-c", READ_ONLY_PROGRAM, str(path)]
    done = await asyncio.to_thread(subprocess.run, command, env=HERE, capture_output=True)
    assert done.stderr == b""
    assert done.stdout.decode().splitlines() == [
        "found 2 in memory True",
        "2 1",
        *["refused True"] * 4,
    ]


async def test_an_append_that_sqlite_refuses_fails_alone(sqlite):
    store = sqlite
    text_for_bytes = Body(bytes(32), b"", "text", b"y" * 16)  # type: ignore[arg-type]
    acks = [
        store.append("s", [draft("a")], NO_STREAM),
        store.append("s", [draft("b"), draft(bodies=(text_for_bytes,))], 0),
        store.append("\ud800", [draft("c")], NO_STREAM),
        store.append("s", [draft("d")], 0),
    ]
    outcomes = await asyncio.gather(*acks, return_exceptions=True)
    assert all(isinstance(one, errors.EventctxError) for one in outcomes[1:3])
    assert outcomes[3].receipt.position == 1
    records = await gather(store.read("s"))
    check_chain(records)
    assert [r.bodies[0].data for r in records] == [b"a", b"d"]


@pytest.mark.parametrize("large", [False, True])
async def test_erased_bytes_are_in_none_of_the_files(path, sqlite, large):
    secret, store = b"the secret words" * (4000 if large else 3), sqlite
    await store.append("s", [draft("a"), draft(secret, "b", secret), draft("c" * 50)], NO_STREAM)
    store.save_snapshot("s", "view", Snapshot(2, bytes(32), 1, b"of " + secret))
    await store.append("s", [draft("d")], 2)
    for number in range(50):
        await store.append("s", [draft("x" * 900)], 3 + number)

    def found():
        return [p.name for p in path.parent.iterdir() if b"secret words" in p.read_bytes()]

    assert found() != []
    assert (await store.erase({"s": {Address(1, 0): b"", Address(1, 2): b""}})).bodies == 2
    assert found() == []
    await store.close()
    assert found() == []


@pytest.mark.slow
async def test_a_flood_that_nobody_awaits_is_written_whole(path, opened):
    store = await opened(SqliteStore.open(path, durability="normal"))
    big = os.urandom(600_000)
    for number in range(150):  # 90 MB: more than the queue takes at once
        store.append("s", [draft(big)], number - 1)
    assert (await store.append("s", [draft("end")], 149)).receipt.position == 150
    check_chain(await gather(store.read("s")))


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX rights")
async def test_a_store_is_its_owners_alone_or_who_writes_is_told_once_that_others_may_read_it(
    path, sqlite, caplog
):
    await sqlite.append("s", [draft("a")], ANY)
    made = sorted(path.parent.glob("store.db*"))
    assert [stat.S_IMODE(one.stat().st_mode) for one in made] == [0o600] * 3
    await sqlite.close()
    path.chmod(0o644)
    for number, said in enumerate((0, 1, 1)):
        store = await SqliteStore.open(path)
        [info async for info in store.streams()]
        if number:
            await store.append("s", [draft(str(number))], ANY)
        await store.close()
        assert caplog.text.count("can be read by other users") == said


pytestmark = pytest.mark.slow


async def test_a_process_that_ends_without_closing_still_writes_what_it_queued(path, program):
    output, errors = await asyncio.to_thread(program("leave", path, 2000).communicate)
    assert (output, errors) == ("", "")
    store = await SqliteStore.open(path)
    records = await gather(store.read("s"))
    assert len(records) == 2000
    check_chain(records)
    await store.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE records SET bodies=4",
        "UPDATE records SET bodies=-1",
        "UPDATE records SET bodies=9223372036854775807",
        "UPDATE bodies SET id=id+7 WHERE id&1048575=2",
        "UPDATE bodies SET data=CAST(data AS TEXT)",
        "DELETE FROM bodies WHERE id&1048575=1",
    ],
)
async def test_contents_that_no_release_stored_so_are_damage(path, sql, opened):
    await make_store(path)
    store = await SqliteStore.open(path)
    await store.append("t", [draft("a", "b", "c")], NO_STREAM)
    await store.close()
    lax = "PRAGMA writable_schema=ON; UPDATE sqlite_schema SET sql=replace(sql,') STRICT',')')"
    for step in (lax, sql):
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute(step).fetchall()
    store = await opened(SqliteStore.open(path))
    with pytest.raises(errors.LogCorrupted):
        await gather(store.read("t"))
