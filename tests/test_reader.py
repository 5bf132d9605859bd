"""A reader answers every question about a store and writes nothing anywhere."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import NotOpened, StoreReadOnly, StoreUnavailable
from eventctx.log.store import ANY
from eventctx.reader import Reader
from tests.sessions import model, user

SQLITES_HELPERS = {"s.db-wal", "s.db-shm"}

WRITING = {"session", "fork", "link", "erase", "delete", "sign", "close_session", "note_receipt"}
"""The methods of an engine that ask nothing."""


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    place = tmp_path / "s.db"
    async with eventctx.open(place, receipts=tmp_path / "book.jsonl") as engine:
        ctx = await engine.session("work", policy="simple", max_tokens=10_000)
        async with ctx.turn() as turn, turn.iteration():
            for message in (user("Fix the lighthouse. Never use red."), model("Done.")):
                await ctx.add_message(message)
                await ctx.get_messages_for_request()
    return place


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    files = [one for one in folder.iterdir() if one.name not in SQLITES_HELPERS]
    digests = {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in files}
    return {one.name: (digests[one.name], one.stat().st_mtime_ns) for one in files}


class Noting:
    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.asked.add(name)
        return getattr(self.reader, name)


async def ask_all(reader: Any, folder: Path) -> None:
    session = "work"
    (info,) = await reader.sessions()
    assert [one async for one in reader.each_session()] == [info]
    records = [record async for record in reader.records(session)]
    assert len(records) == info.head + 1
    assert [line.number for line in await reader.transcript(session)] == [0, 1]
    assert (await reader.request_view(session, 1)).verified
    assert len((await reader.audit(session)).requests) == 2
    assert (await reader.timeline(session))["head"] == info.head
    assert (await reader.why(session, 0)).number == 0
    assert (await reader.diff(session, (1, 1), 1)) is not None
    assert (await reader.lost(session)) is not None
    assert (await reader.instructions(session)) is not None
    assert [one.number for one in await reader.recall("lighthouse")] == [0]
    assert reader.recaller().exists()
    assert (await reader.verify(session)).ok
    assert (await reader.verify_store()).ok
    assert [one async for one in reader.verifications()]
    assert (await reader.dry_run(session, force=True)) is not None
    assert (await reader.compare([session], policies=["simple"], budgets=[10_000])) is not None
    assert await reader.hook_failures() == ()
    assert await reader.mirror_of(session) is None
    assert await reader.forks(session) == []
    assert [one.session for one in await reader.expired(2**62)] == [session]
    assert reader.receipts_path is not None
    assert (await reader.backup(folder / "backup.db")).ok
    assert (await reader.export_atif(session, folder / "work.json")).completeness.requests == 2
    async with eventctx.open(folder / "copy.db", receipts=False) as other:
        assert (await reader.copy_to(other)).ok


def questions(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and name != "close"}


@pytest.mark.parametrize(("file", "folder"), [(0o600, 0o700), (0o400, 0o500)])
async def test_no_question_changes_or_makes_a_file_and_each_reads_one_that_nobody_may_write(
    path, tmp_path, tmp_path_factory, file, folder
):
    before = contents(tmp_path)
    path.chmod(file)
    tmp_path.chmod(folder)
    try:
        async with eventctx.read(path, receipts=tmp_path / "book.jsonl") as reader:
            noting = Noting(reader)
            await ask_all(noting, tmp_path_factory.mktemp("elsewhere"))
    finally:
        tmp_path.chmod(0o700)
    assert noting.asked == questions(Reader) == questions(Engine) - WRITING
    assert questions(Engine) >= WRITING
    assert contents(tmp_path) == before


async def test_an_open_store_is_read_without_an_index_with_what_is_appended(path, tmp_path):
    async with eventctx.open(path) as engine:
        before = set(contents(tmp_path))
        async with eventctx.read(engine.store) as reader:
            assert [one.number for one in await reader.recall("lighthouse")] == [0]
            await reader.timeline("work")
            with pytest.raises(StoreReadOnly, match=r"append: expected a store that may be writt"):
                await reader.store.append("work", [], ANY)
        assert set(contents(tmp_path)) == before
        await (await engine.session("work")).add_message(user("again"))
        assert len(await engine.transcript("work")) == 3
    async with eventctx.open(path) as engine, eventctx.read(path) as reader:
        await (await engine.session("work")).add_message(user("And the beacon."))
        assert [line.number for line in await reader.transcript("work")] == [0, 1, 2, 3]
        assert [one.number for one in await reader.recall("beacon")] == [3]


async def test_before_it_is_awaited_and_after_close_every_question_is_refused(path):
    with pytest.raises(NotOpened, match=r"async with eventctx\.read\(…\) as reader"):
        eventctx.read(path).transcript  # noqa: B018
    reader = await eventctx.read(path)
    await reader.close()
    await reader.close()
    in_session = (reader.transcript("work"), reader.audit("work"), reader.why("work", 0))
    for asked in (*in_session, reader.sessions(), reader.verify_store(), reader.recall("red")):
        with pytest.raises(StoreUnavailable, match="closed"):
            await asked


async def test_a_receipt_that_does_not_hold_is_told_and_not_noted(path, tmp_path, caplog):
    book = tmp_path / "book.jsonl"
    noted = book.read_text().replace('"position":', '"position":9')
    book.write_text(noted)
    async with eventctx.read(path, receipts=book):
        pass
    assert "is not what it was" in caplog.text
    assert book.read_text() == noted
