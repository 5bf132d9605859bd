"""kill -9 while a hundred sessions write: what was acknowledged is there, and every chain whole."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from tests.faults.counts import report, trials
from tests.faults.processes import (
    check_the_store,
    check_what_was_acknowledged,
    program,
    receipts_in,
)

pytestmark = pytest.mark.slow

SESSIONS = 100
KILLS_OF_A_STORE = 20
"""Then a new store: opening one takes the longer the more it holds."""


def write_and_kill(path: Path, chance: random.Random) -> list[str]:
    """The lines that a writer printed before it was killed at a random moment."""
    with program("sessions.py", path, SESSIONS) as writer:
        assert writer.stdout is not None and writer.stderr is not None
        first = writer.stdout.readline()
        assert first == "ready\n", writer.stderr.read()
        first = writer.stdout.readline()  # a receipt, however busy the machine is
        # What is waited for is the moment of the cut, not something to become true.
        time.sleep(chance.uniform(0.0, 0.6))
        writer.kill()
        output, errors = writer.stdout.read(), writer.stderr.read()  # what is buffered, too
        assert errors == ""
        return [first, *output.splitlines(keepends=True)]


async def kill_often(folder: Path, count: int, seed: int) -> dict[str, int]:
    """Kill a writer ``count`` times. Raises AssertionError for a promise that was broken."""
    chance = random.Random(seed)
    acknowledged = 0
    for number in range(count):
        path = folder / f"{number // KILLS_OF_A_STORE}.db"
        lines = await asyncio.to_thread(write_and_kill, path, chance)
        acknowledged += await check_what_was_acknowledged(path, receipts_in(lines))
        if number + 1 == count or (number + 1) % KILLS_OF_A_STORE == 0:
            await check_the_store(path)
    return {"kills": count, "acknowledged records": acknowledged, "lost": 0}


async def test_nothing_acknowledged_is_lost_when_a_hundred_sessions_are_killed(
    tmp_path: Path,
) -> None:
    found = await kill_often(tmp_path, trials("kills"), 1)
    assert found["acknowledged records"] > 0
    report("kills", found)
