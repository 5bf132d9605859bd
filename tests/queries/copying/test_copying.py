"""Copies of sessions between stores: the same records, whatever happened there or on the way."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from subprocess import DEVNULL

import apsw
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import eventctx
from eventctx.cli.main import cli
from eventctx.errors import SessionDiffers, SessionWasDeleted
from eventctx.log.codec import decode_known
from eventctx.log.record import Record
from eventctx.log.store import EventStore
from eventctx.queries import copy_writing
from eventctx.stores.receipt_book import ReceiptBook
from eventctx.stores.sqlite import SqliteStore

KEY = "alpha bravo charlie, and no other words"


Opener = Callable[[str], Awaitable[eventctx.Engine]]
Pair = tuple[eventctx.Engine, eventctx.Engine]

_numbers = itertools.count()


@pytest.fixture
async def stores(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Opener]:
    """Opens engines by name: ``memory``, ``postgres``, ``jetstream`` or a file's name."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with AsyncExitStack() as stack:

        def url(name: str) -> str:
            if name.startswith("memory"):
                return "memory://"
            if name == "postgres":
                server = request.getfixturevalue("postgres")
                schema = f"copied_{os.getpid()}_{next(_numbers)}"
                drop = f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'
                stack.callback(server.execute, drop)
                return str(server.url(schema=schema))
            if name == "jetstream":
                cluster = request.getfixturevalue("shared_cluster")
                # After the engine has closed.
                stack.push_async_callback(asyncio.to_thread, cluster.delete_streams)
                return str(cluster.url(f"C{os.getpid()}_{next(_numbers)}"))
            return str(tmp_path / name)

        async def opened(name: str) -> eventctx.Engine:
            book = tmp_path / f"{name}.receipts"
            return await stack.enter_async_context(eventctx.open(url(name), receipts=book))

        yield opened


PLACES = [
    ("from.db", "to.db"),
    ("from.db", "memory"),
    pytest.param(("postgres", "jetstream"), marks=pytest.mark.slow),
    pytest.param(("jetstream", "postgres"), marks=pytest.mark.slow),
]
"""Every kind of store that lasts is a source and a target."""


@pytest.fixture(params=PLACES, ids=lambda pair: "-".join(pair))
async def pair(request: pytest.FixtureRequest, stores: Opener) -> Pair:
    """A source and a target, of every kind."""
    one, other = request.param
    return await stores(one), await stores(other)


@pytest.fixture
async def files(stores: Opener) -> Pair:
    return await stores("from.db"), await stores("to.db")


async def talk(engine: eventctx.Engine, session: str, turns: int = 2) -> None:
    context = await engine.session(session, max_tokens=2_000, policy="ladder")
    for turn in range(turns):
        async with context.turn():
            await context.add_message({"role": "user", "content": f"{KEY} {turn} in {session}"})
            await context.add_message({"role": "assistant", "content": f"Said {turn}. " * 40})
            await context.get_messages_for_request()
    await engine.close_session(session)  # with the last record of the turn, which nobody awaits


async def records(engine: eventctx.Engine, session: str) -> list[Record]:
    return [one async for one in engine.store.read(session)]


def plain(records: list[Record]) -> list[Record]:
    """All that a copy keeps: everything but the place in the store."""
    return [replace(one, global_position=0) for one in records]


async def same(source: eventctx.Engine, target: eventctx.Engine, *sessions: str) -> None:
    for session in sessions:
        assert plain(await records(source, session)) == plain(await records(target, session))
        assert await source.store.head(session) == await target.store.head(session)
        assert (await target.verify(session)).ok


async def whole(store: EventStore) -> list[tuple]:
    found = []
    async for info in store.streams():
        # A deleted fork is none any more; a file still says what it was.
        info = replace(info, parent=None, forked_at=None) if info.deleted else info
        read = store.read(info.stream, start=info.head if info.deleted else 0)
        found.append((info, plain([one async for one in read])))
    return found


def edited(path: Path, statement: str) -> list[tuple]:
    """Run a statement on a store's file, behind the store's back; its rows."""
    connection = apsw.Connection(str(path))
    rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


async def test_a_copy_has_the_same_records_views_audit_and_receipts_and_goes_on(pair) -> None:
    source, target = pair
    await talk(source, "a")
    early = (await source.verify("a")).receipt
    for name in ("a", "b"):
        await talk(source, name)
    late = (await source.verify("a")).receipt
    result = await source.copy_to(target)
    assert result.ok and (result.sessions, result.copied, result.checked) == (2, 2, 2)
    await same(source, target, "a", "b")
    assert [info async for info in target.each_session()] == [
        info async for info in source.each_session()
    ]
    assert await source.request_view("a", 2) == await target.request_view("a", 2)
    assert await source.audit("b") == await target.audit("b")
    assert await source.transcript("b") == await target.transcript("b")
    assert early != late
    for receipt in (early, late):
        assert (await target.verify("a", receipt)).ok
    if target.receipts_path is not None:
        assert ReceiptBook(target.receipts_path).last()["a"] == late
    await talk(target, "a", turns=1)
    info = await target.store.head("a")
    assert info.head > (await source.store.head("a")).head and (await target.verify("a")).ok
    again = await source.copy_to(target)
    assert again.ok and (again.unchanged, again.records) == (2, 0)
    assert await target.store.head("a") == info


async def test_only_what_came_since_is_copied_or_nothing_beside_another_session(pair) -> None:
    source, target = pair
    await talk(source, "a")
    first = await source.copy_to(target)
    await talk(source, "a")
    await talk(source, "b")
    second = await source.copy_to(target)
    assert (second.copied, second.continued, second.unchanged) == (1, 1, 0)
    count = len(await records(source, "a")) + len(await records(source, "b"))
    assert first.records + second.records == count
    third = await source.copy_to(target)
    assert (third.unchanged, third.records, third.checked) == (2, 0, 2)
    await same(source, target, "a", "b")
    for engine, name in ((source, "c"), (target, "d"), (source, "d")):
        await talk(engine, name)
    before = await whole(target.store)
    with pytest.raises(SessionDiffers, match="'d' is another one") as refused:
        await source.copy_to(target)
    assert (refused.value.stream, refused.value.position) == ("d", 0)
    assert await whole(target.store) == before


async def test_forks_and_erased_contents_are_such_in_the_copy(pair) -> None:
    source, target = pair
    await talk(source, "root")
    await source.fork("root", 5, "child")
    await talk(source, "child")
    await source.fork("child", 8, "grandchild")
    await talk(source, "a")
    await source.erase("a", [0])
    result = await source.copy_to(target)
    assert result.ok and result.erased == 0
    assert (await target.verify("a")).erased == (await source.verify("a")).erased > 0
    names = ("root", "child", "grandchild", "a")
    await same(source, target, *names)
    info = await target.store.head("grandchild")
    assert (info.parent, info.forked_at) == ("child", 8)
    assert await target.forks("root") == await source.forks("root")
    inherited = 9 + 6
    assert result.records + inherited == sum([len(await records(source, one)) for one in names])


async def test_a_fork_goes_with_its_parent_or_behind_it(files) -> None:
    source, target = files
    await talk(source, "root")
    await source.fork("root", 5, "child")
    await source.fork("child", 6, "grandchild")
    with pytest.raises(eventctx.InvalidSetting, match="together: root child grandchild"):
        await source.copy_to(target, ["grandchild"])
    assert await target.sessions() == []
    result = await source.copy_to(target, ["grandchild", "root", "child"])
    assert result.ok and result.copied == 3
    await source.fork("root", 5, "later")
    assert (await source.copy_to(target, ["later"])).ok
    await same(source, target, "root", "child", "grandchild", "later")


async def test_what_was_erased_after_a_copy_is_erased_there_by_the_next(files, tmp_path) -> None:
    source, target = files
    await talk(source, "a")
    await source.fork("a", 5, "b")
    await source.copy_to(target)
    assert await target.recall("bravo")
    await source.erase("a", [0])
    result = await source.copy_to(target)
    assert result.ok and result.erased > 0
    await same(source, target, "a", "b")
    words = f"{KEY} 0 in a".encode()
    assert not any(words in path.read_bytes() for path in tmp_path.glob("to.db*") if path.is_file())
    assert {one.number for one in await target.recall("bravo", "a")} == {2}


async def test_what_was_deleted_before_a_copy_or_after_it_is_deleted_there(pair) -> None:
    source, target = pair
    for name in ("kept", "gone", "a"):
        await talk(source, name)
    await source.fork("a", 5, "b")
    await source.delete("gone", reason="asked")
    result = await source.copy_to(target)
    assert result.ok and (result.copied, result.deleted, result.left_out) == (3, 1, 0)
    assert await whole(source.store) == await whole(target.store)
    assert (await target.verify("gone")).deleted > 0
    checked = await target.verify_store()
    assert checked.ok, checked
    with pytest.raises(SessionWasDeleted):
        await (await target.session("gone")).add_message({"role": "user", "content": "x"})
    again = await source.copy_to(target)
    assert (again.unchanged, again.records) == (4, 0)
    await source.delete("a", forks=True)
    result = await source.copy_to(target)
    assert result.ok and (result.deleted, result.unchanged) == (2, 2)
    assert await whole(source.store) == await whole(target.store)
    assert (await target.verify_store()).ok


@pytest.mark.parametrize("deleted", [0, 1], ids=["source", "target"])
async def test_a_session_that_was_deleted_on_one_side_and_went_on_elsewhere(files, deleted) -> None:
    source, target = files
    await talk(source, "a")
    await source.copy_to(target)
    await talk(files[not deleted], "a")
    await files[deleted].delete("a")
    with pytest.raises(SessionDiffers, match="deleted"):
        await source.copy_to(target)


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE records SET payload = zeroblob(4) WHERE stream = 2 AND position = 4",
        "UPDATE records SET data = zeroblob(9) WHERE stream = 2 AND position > 3 AND data NOT NULL",
        "DELETE FROM records WHERE stream = 2 AND position = 4",
    ],
)
async def test_a_damaged_session_is_named_and_the_others_are_copied(stores, tmp_path, edit) -> None:
    source = await stores("from.db")
    for name in ("a", "b", "c"):
        await talk(source, name)
    await source.fork("b", 7, "of b")
    await source.close()
    edited(tmp_path / "from.db", edit)
    target = await stores("to.db")
    async with eventctx.open(tmp_path / "from.db", receipts=False) as damaged:
        result = await damaged.copy_to(target)
        await same(damaged, target, "a", "c")
    assert not result.ok and (result.checked, result.failed) == (2, 2)
    found = {one.session: one for one in result.problems}
    assert found["b"].damage and found["b"].position >= 4
    assert not found["of b"].damage and "parent" in found["of b"].text
    assert (await target.verify("b")).ok, "what lies before the damage is whole"


async def test_a_record_that_was_changed_in_the_target_is_found_by_a_copy(files, tmp_path) -> None:
    source, target = files
    await talk(source, "a")
    await source.copy_to(target)
    await target.close()
    edit = "UPDATE records SET data = zeroblob(9) WHERE data NOT NULL RETURNING position"
    changed = edited(tmp_path / "to.db", edit)
    async with eventctx.open(tmp_path / "to.db", receipts=False) as reopened:
        result = await source.copy_to(reopened)
    (problem,) = result.problems
    assert not result.ok and problem.damage and problem.position == changed[0][0]


async def test_a_session_that_grows_while_it_is_copied_comes_after(files, monkeypatch) -> None:
    monkeypatch.setattr(copy_writing, "BATCH_RECORDS", 2)
    source, target = files
    await talk(source, "a", turns=4)
    writers = asyncio.gather(*(talk(source, name, turns=6) for name in ("a", "b", "c")))
    while not writers.done():
        result = await source.copy_to(target)
        assert result.ok, result.problems
    await writers
    assert (await source.copy_to(target)).ok
    await same(source, target, "a", "b", "c")


async def test_a_mark_of_a_deletion_takes_a_name_that_is_free_and_is_set_once(pair) -> None:
    source, target = pair
    await talk(source, "gone")
    await talk(target, "taken")
    await source.delete("gone")
    (last,) = await records(source, "gone")
    info = await source.store.head("gone")
    event = decode_known(last)
    given = (copy_writing.draft_of(last), bytes.fromhex(event.digest), event.records)
    first = await target.store.set_tombstone(info, *given)
    again = await target.store.set_tombstone(info, *given)
    assert plain([first]) == plain([again]) == plain([last])
    with pytest.raises(eventctx.StreamExists):
        await target.store.set_tombstone(replace(info, stream="taken"), *given)


async def test_the_steps_are_told_and_a_session_that_is_not_there_before_any_of_them(files) -> None:
    source, target = files
    await talk(source, "a")
    await talk(source, "b")
    with pytest.raises(eventctx.StreamNotFound):
        await source.copy_to(target, ["a", "nobody"])
    with pytest.raises(eventctx.InvalidSetting):
        await source.copy_to(target, "a")
    assert await target.sessions() == []
    told: list[tuple[str, int, int]] = []
    result = await source.copy_to(target, progress=lambda *step: told.append(step))
    assert [step for step, _, _ in told] == ["comparing"] * 2 + ["copying"] * 2 + ["checking"] * 2
    assert told[3][1:] == (result.records, result.records) and told[-1][1:] == (2, 2)


# -- a copy that is killed at any moment ---------------------------------------------------------


async def _write(path: Path) -> None:
    async with eventctx.open(path, receipts=False) as engine:
        for number in range(12):
            await talk(engine, f"s{number:02}", turns=8)
            if number % 4 == 1:
                await engine.fork(f"s{number:02}", 20, f"fork of s{number:02}")
        await engine.erase("s03", [2])
        await engine.delete("s06")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("killed") / "from.db"
    asyncio.run(_write(path))
    return path


_SLOW = """
import sys, time
from eventctx.cli.main import main
from eventctx.queries import copy_writing
from eventctx.stores.sqlite import SqliteStore

append = SqliteStore.append

def slowly(*given, **more):
    time.sleep(0.01)  # as on a slow disk: the killer looks now and then
    return append(*given, **more)

copy_writing.BATCH_RECORDS = 3  # many appends, so that a kill meets one
SqliteStore.append = slowly
main(sys.argv[1:])
"""


def _stored(path: Path) -> int:
    """How many records a store has, looked up as cheaply as a killer has to."""
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        ((count,),) = connection.execute("SELECT count(*) FROM records").fetchall()
    except apsw.Error:
        return 0  # there is none yet
    connection.close()
    return count


async def _all(path: Path) -> list[tuple]:
    store = await SqliteStore.open(path, read_only=True)
    try:
        return await whole(store)
    finally:
        await store.close()


@pytest.mark.slow
def test_a_killed_copy_is_gone_on_with(source, tmp_path) -> None:
    target = tmp_path / "to.db"
    copy = ["copy", str(source), str(target)]
    wanted = asyncio.run(_all(source))
    total = _stored(source)
    reached: list[int] = []
    for share in (0.1, 0.6):
        with subprocess.Popen([sys.executable, "-c", _SLOW, *copy], stdout=DEVNULL) as child:
            limit = time.monotonic() + 60
            while _stored(target) < share * total and child.poll() is None:
                assert time.monotonic() < limit
                time.sleep(0.01)
            os.kill(child.pid, signal.SIGKILL)
        reached.append(_stored(target))
        for (info, there), (whole_info, records) in zip(
            asyncio.run(_all(target)), wanted, strict=False
        ):
            assert info.stream == whole_info.stream
            assert there == records[: len(there)], "what is there is the source's, as far as it is"
    assert 0 < reached[0] < total, "killed in the middle"
    assert reached == sorted(reached)
    assert "read back and equal" in CliRunner().invoke(cli, copy).stdout
    assert asyncio.run(_all(target)) == wanted
