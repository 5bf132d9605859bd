"""Without any fault, what the clients of a run saw of a store is what is there."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from eventctx.log.store import EventStore
from eventctx.stores.sqlite import SqliteStore
from tests.faults.histories import check, count
from tests.faults.workload import Load, Stuck, nothing, run

LIGHT = Load(writers=20, before=100, after=50, patience=20.0)


async def test_clients_of_one_file_see_a_sound_history(tmp_path: Path) -> None:
    async def opening() -> EventStore:
        return await SqliteStore.open(tmp_path / "store.db")

    done = await run(opening, nothing, LIGHT)
    assert check(done.history, done.stored) == []
    assert len(done.history.acknowledged()) >= 150
    assert any(one.outcome == "refused" for one in done.history.appends)
    assert done.history.looks
    assert len(done.history.delivered) == 1 + LIGHT.sessions + 1
    assert done.loud == []


async def test_records_that_the_file_loses_meanwhile_are_found(tmp_path: Path) -> None:
    async def opening() -> EventStore:
        return await SqliteStore.open(tmp_path / "store.db")

    async def forget_the_latest() -> None:
        connection = apsw.Connection(str(tmp_path / "store.db"))
        connection.set_busy_timeout(5000)
        connection.execute(
            """
            BEGIN IMMEDIATE;
            DELETE FROM bodies WHERE id >> 20 > (SELECT max(pos) - 20 FROM records);
            DELETE FROM records WHERE pos > (SELECT max(pos) - 20 FROM records);
            COMMIT"""
        ).fetchall()
        connection.close()

    done = await run(opening, forget_the_latest, LIGHT)
    found = count(check(done.history, done.stored))
    assert found["lost"] > 0
    assert found["delivered and not there"] > 0


async def test_a_store_that_never_answers_again_is_no_success(tmp_path: Path) -> None:
    stores: list[SqliteStore] = []

    async def opening() -> EventStore:
        stores.append(await SqliteStore.open(tmp_path / "store.db"))
        return stores[-1]

    async def close_all() -> None:
        for one in stores:
            await one.close()

    with pytest.raises(Stuck):
        await run(opening, close_all, LIGHT._replace(patience=1.0))
