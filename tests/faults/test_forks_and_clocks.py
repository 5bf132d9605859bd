"""A process that forks, and a clock that jumps back: the log goes on as if nothing had been."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

import eventctx
from tests.faults.counts import report, trials
from tests.faults.given import converse, scratch
from tests.faults.processes import (
    check_the_store,
    check_what_was_acknowledged,
    program,
    receipts_in,
)

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_children_that_a_process_forks_are_refused_and_harm_nothing(tmp_path: Path) -> None:
    path, count = tmp_path / "store.db", trials("forks")

    def run() -> list[str]:
        with program("forking.py", path, count) as forking:
            output, errors = forking.communicate(timeout=300)
            assert (errors, forking.returncode) == ("", 0)
            return output.splitlines(keepends=True)

    lines = await asyncio.to_thread(run)
    receipts = receipts_in(lines)
    assert len(receipts) == count + 1
    assert [line for line in lines if "@" not in line] == ["refused\n"] * 3 * count
    acknowledged = await check_what_was_acknowledged(path, receipts)
    await check_the_store(path)
    report("forks", {"forks": count, "acknowledged records": acknowledged, "lost": 0})


class JumpingClock:
    """UTC nanoseconds that jump back and forth, by seconds or by years."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._now = 1_700_000_000_000_000_000
        self.jumps_back = 0

    def __call__(self) -> int:
        step = self._chance.choice([1_000, 10**6, 10**9, -(10**9), -(10**12), -(10**17), 10**16])
        self.jumps_back += step < 0
        self._now = max(0, self._now + step)
        return self._now


async def test_a_clock_that_jumps_back_never_takes_a_session_back() -> None:
    count, jumps = trials("clocks"), 0
    for seed in range(count):
        clock = JumpingClock(random.Random(seed))
        with scratch() as folder:
            path = folder / "store.db"
            async with eventctx.open(path, receipts=False, clock=clock) as engine:
                await converse(await engine.session("s", max_tokens=2_000), 4)
                await engine.fork("s", 12, "fork")
                await converse(await engine.session("fork", max_tokens=2_000), 2)
                await engine.erase("s", [0])
            async with eventctx.open(path, receipts=False, clock=clock) as engine:
                await converse(await engine.session("s", max_tokens=2_000), 2)
                for name in ("s", "fork"):
                    times = [record.time async for record in engine.records(name)]
                    assert times == sorted(times)
                    assert (await engine.audit(name)).requests
            await check_the_store(path)
        jumps += clock.jumps_back
    assert jumps > count
    report("clocks", {"clocks": count, "jumps back": jumps})
