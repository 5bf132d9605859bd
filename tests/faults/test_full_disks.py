"""A disk without space: a typed error, what was acknowledged stays readable, and writing goes on.

Every error but ``StoreFull`` would end the program with a traceback, which the test refuses.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.counts import report, trials
from tests.faults.disks import small_disk
from tests.faults.processes import (
    check_the_store,
    check_what_was_acknowledged,
    program,
    receipts_in,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX limits"),
]


async def fill_up(path: Path, limit: object) -> int:
    """Run the program against a limit, and check the store; how many records it acknowledged."""

    def run() -> Sequence[str]:
        with program("filling.py", path, limit) as filling:
            output, errors = filling.communicate(timeout=120)
            assert errors == ""
            return output.splitlines(keepends=True)

    lines = await asyncio.to_thread(run)
    assert [line for line in lines if "@" not in line] == ["full\n", "read\n", "again\n"]
    acknowledged = await check_what_was_acknowledged(path, receipts_in(lines))
    await check_the_store(path)
    return acknowledged


async def test_a_limit_of_file_size_loses_nothing(tmp_path: Path) -> None:
    chance, acknowledged = random.Random(1), 0
    count = trials("limits of file size")
    for number in range(count):
        limit = chance.randrange(150_000, 1_500_000)
        acknowledged += await fill_up(tmp_path / f"{number}.db", limit)
    report(
        "limits of file size",
        {"limits": count, "acknowledged records": acknowledged, "lost": 0},
    )


async def test_a_full_disk_loses_nothing() -> None:
    chance, acknowledged = random.Random(2), 0
    count = trials("full disks")
    for _ in range(count):
        with small_disk(chance.randrange(2_000, 6_000)) as folder:
            ballast = folder / "ballast"
            ballast.write_bytes(bytes(1_200_000))
            acknowledged += await fill_up(folder / "store.db", ballast)
    report("full disks", {"disks": count, "acknowledged records": acknowledged, "lost": 0})
