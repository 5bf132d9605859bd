"""An engine that is dropped without a close says so, loses nothing, and ends its threads."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import apsw
import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import StoreUnavailable
from eventctx.log.events import PlanStart
from eventctx.stores.memory import MemoryStore
from tests.sessions import USER, names


def threads_of(name: str) -> list[str]:
    return [one.name for one in threading.enumerate() if name in one.name or "release" in one.name]


def ended_within(seconds: float, name: str) -> bool:
    end = time.monotonic() + seconds
    while (left := threads_of(name)) and time.monotonic() < end:
        time.sleep(0.01)
    return not left


async def drop_one(path: Path) -> None:
    engine = await eventctx.open(path)
    ctx = await engine.session("s")
    await ctx.add_message(USER)
    for _ in range(200):
        await ctx.emit(PlanStart())


async def test_a_dropped_engine_warns_writes_what_is_queued_and_ends_its_threads(
    tmp_path: Path,
) -> None:
    path = tmp_path / "dropped.db"
    await drop_one(path)
    with pytest.warns(ResourceWarning, match=r"dropped\.db was dropped without a close"):
        gc.collect()
    assert await asyncio.to_thread(ended_within, 10, "dropped.db")
    assert await written(path) == 200


def test_a_program_that_forgets_to_close_ends_and_has_written_everything(tmp_path: Path) -> None:
    text = (
        "import asyncio, sys, eventctx\n"
        "from eventctx.log.events import PlanStart\n"
        "async def main():\n"
        "    ctx = await (await eventctx.open(sys.argv[1])).session('s')\n"
        "    for _ in range(200):\n"
        "        await ctx.emit(PlanStart())\n"
        "asyncio.run(main())\n"
    )
    path = tmp_path / "forgotten.db"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", text, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "forgotten.db was dropped without a close" in done.stderr
    assert asyncio.run(written(path)) == 200


async def test_an_engine_whose_opening_fails_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    async with eventctx.open(path) as engine:
        await (await engine.session("s")).add_message(USER)
    with apsw.Connection(str(path)) as database:
        (size,) = database.execute("PRAGMA page_size").fetchone()
        sought = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_streams_1'"
        (page,) = database.execute(sought).fetchone()
    data = bytearray(path.read_bytes())
    data[(page - 1) * size] ^= 1  # no page of an index begins so
    path.write_bytes(data)
    with pytest.raises(StoreUnavailable, match="the database file is damaged"):
        await eventctx.open(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    assert threads_of("damaged.db") == []


async def written(path: Path) -> int:
    async with eventctx.open(path) as engine:
        return (await names(engine)).count("plan:start")


async def test_a_closed_engine_and_one_on_a_store_of_its_callers_are_dropped_in_silence(
    tmp_path: Path,
) -> None:
    async with eventctx.open(tmp_path / "s.db") as engine:
        await engine.session("s")
    store = MemoryStore()
    one = Engine(store)
    await one.session("s")
    del engine, one
    gc.collect()
    assert await names(Engine(store)) == ["session:start"]
