"""A power cut at any moment: what was acknowledged with durability "full" is still there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.faults.counts import report, trials
from tests.faults.crash_states import check_crash_states, count_problems, record_a_run

pytestmark = pytest.mark.slow


async def test_no_power_cut_loses_what_was_acknowledged(tmp_path: Path) -> None:
    steps = await record_a_run(tmp_path, "full")
    assert sum(step.kind == "ack" for step in steps) == 200
    assert any(
        step.name == "store.db" and step.kind == "sync" for step in steps[-len(steps) // 2 :]
    )
    count = trials("crash states")
    await asyncio.to_thread(check_crash_states, steps, count, 1)
    report("crash states", {"tried": count, "problems": 0})


async def test_normal_durability_may_lose_the_end_but_breaks_nothing(tmp_path: Path) -> None:
    steps = await record_a_run(tmp_path, "normal")
    problems = await asyncio.to_thread(count_problems, steps, 100, 3)
    assert set(problems) == {"acknowledged records are missing"}
