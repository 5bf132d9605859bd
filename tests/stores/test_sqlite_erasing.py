"""Erasure in a file: killed in the middle, and with a reader of another process in the way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import eventctx
from tests.how_much import some
from tests.session.test_erasing import SECRET, files_with, talk

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("what", ["erase", "delete"])
async def test_an_erasure_that_is_killed_is_whole_or_not_begun_at_the_next_opening(
    tmp_path: Path, program: Callable[..., Any], what: str
) -> None:
    draw = random.Random(what)  # noqa: S311
    outcomes: list[bool] = []  # whether the content was still there
    latest = 0.03
    while len(outcomes) < some(2, 8) or all(outcomes):
        assert len(outcomes) < 16
        folder = tmp_path / str(len(outcomes))
        folder.mkdir()
        path = folder / "store.db"
        async with eventctx.open(path, receipts=False) as engine:
            context = await engine.session("s")
            await context.add_message(SECRET)
            await talk(context, 3)
            await engine.recall("foxtrot")
        child = program("eraser.py", path, what)
        assert (await asyncio.to_thread(child.stdout.readline)).strip() == "ready"
        await asyncio.sleep(draw.uniform(0, latest))
        child.kill()
        await asyncio.to_thread(child.wait)
        async with eventctx.open(path, receipts=False) as engine:
            assert (await engine.verify_store()).ok
            names = [info.stream for info in await engine.sessions()]
            there = bool(names) and (await engine.transcript("s"))[0].message == SECRET
            assert bool(files_with(folder)) == there
            outcomes.append(there)
            latest *= 2 if there else 1  # it had not begun: this machine takes longer
            assert bool(await engine.recall("foxtrot")) == there
        assert bool(files_with(folder)) == there


async def test_a_reader_in_the_way_is_said_and_the_bytes_go_when_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.db"
    async with eventctx.open(path, receipts=False, lock_timeout=0.2) as engine:
        context = await engine.session("s")
        await context.add_message(SECRET)
        reader = apsw.Connection(str(path))
        rows = reader.execute("SELECT * FROM records")
        next(rows)
        assert not (await engine.erase("s", [0])).scrubbed
        assert "stays legible" in caplog.text
        assert files_with(tmp_path)
        rows.close()
        reader.close()
        await context.add_message({"role": "user", "content": "more"})
    assert files_with(tmp_path) == []


async def test_what_a_process_could_not_scrub_is_scrubbed_at_the_next_opening(
    tmp_path: Path, program: Callable[..., Any]
) -> None:
    path = tmp_path / "store.db"
    async with eventctx.open(path, receipts=False) as engine:
        context = await engine.session("s")
        await context.add_message(SECRET)
        holder = program("holder.py", path)
        assert (await asyncio.to_thread(holder.stdout.readline)).strip() == "reading"
    eraser = program("eraser.py", path, "erase")
    assert (await asyncio.to_thread(eraser.communicate))[0].split() == ["ready", "done"]
    assert files_with(tmp_path)
    holder.kill()
    await asyncio.to_thread(holder.wait)
    async with eventctx.open(path, receipts=False) as engine:
        await (await engine.session("s")).add_message({"role": "user", "content": "more"})
        assert files_with(tmp_path) == []
