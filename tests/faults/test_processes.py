"""Processes that are killed, compete, or fork, and a clock that jumps: nothing is lost or twice."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

import eventctx
from eventctx.log.codec import decode_event
from tests.faults.counts import report, trials
from tests.faults.given import converse, scratch
from tests.faults.processes import check_acknowledged, check_store, lines_of, program, receipts_in
from tests.how_much import some

pytestmark = pytest.mark.slow

SESSIONS = 100
KILLS_OF_A_STORE = 20
"""Then a new store: opening one takes the longer the more it holds."""


def write_and_kill(path: Path, chance: random.Random) -> list[str]:
    """The lines that a writer printed before it was killed at a random moment."""
    with program("converse", path, SESSIONS) as writer:
        assert writer.stdout.readline() == "ready\n", writer.stderr.read()
        first = writer.stdout.readline()  # a receipt, however busy the machine is
        # What is waited for is the moment of the cut, not something to become true.
        time.sleep(chance.uniform(0.0, 0.6))
        writer.kill()
        output, errors = writer.stdout.read(), writer.stderr.read()  # what is buffered, too
        assert errors == ""
        return [first, *output.splitlines(keepends=True)]


async def test_nothing_acknowledged_is_lost_when_100_sessions_are_killed(tmp_path: Path) -> None:
    chance, acknowledged, count = random.Random(1), 0, trials("kills")
    for number in range(count):
        path = tmp_path / f"{number // KILLS_OF_A_STORE}.db"
        lines = await asyncio.to_thread(write_and_kill, path, chance)
        acknowledged += await check_acknowledged(path, receipts_in(lines))
        if number + 1 == count or (number + 1) % KILLS_OF_A_STORE == 0:
            await check_store(path)
    assert acknowledged > 0
    report("kills", {"kills": count, "acknowledged records": acknowledged, "lost": 0})


PROCESSES = some(4, 8)
MESSAGES = 12


async def check_the_session(path: Path) -> None:
    """Assert that every message is there once, those of a process in its order, without gaps."""
    async with eventctx.open(path, receipts=False) as engine:
        records = [record async for record in engine.records("shared")]
        assert [record.position for record in records] == list(range(len(records)))
        transcript = await engine.transcript("shared")
        told = [str(one.message and one.message["content"]).split()[:2] for one in transcript]
        for number in range(PROCESSES):
            own = [int(count) for name, count in told if name == f"p{number}"]
            assert own == list(range(MESSAGES))
        assert len(told) == PROCESSES * MESSAGES
        # A process may take another one's turn for lost, which it found open when it came.
        lost = [r for r in records if getattr(decode_event(r), "status", None) == "lost"]
        types = Counter(record.type for record in records if record not in lost)
        assert types["prompt:submit"] == types["prompt:complete"] == PROCESSES * MESSAGES
        assert types["context:pre_compact"] == types["context:post_compact"]


async def test_processes_on_one_session_lose_and_repeat_nothing() -> None:
    found: Counter[str] = Counter()
    for _ in range(trials("contests")):
        with scratch() as folder:
            path = folder / "store.db"
            with ExitStack() as running:
                contenders = [
                    running.enter_context(program("contend", path, f"p{number}", MESSAGES))
                    for number in range(PROCESSES)
                ]
                printed = [await asyncio.to_thread(lines_of, one) for one in contenders]
            lines = [line for one in printed for line in one]
            receipts = receipts_in(lines)
            assert len(receipts) == PROCESSES * MESSAGES
            assert len({one.position for one in receipts}) == len(receipts)
            found["acknowledged records"] += await check_acknowledged(path, receipts)
            found["conflicts of compactions"] += sum(
                int(line.split()[1]) for line in lines if line.startswith("beaten")
            )
            await check_the_session(path)
            await check_store(path)
        found["contests"] += 1
    report("contests", found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_children_that_a_process_forks_are_refused_and_harm_nothing(tmp_path: Path) -> None:
    path, count = tmp_path / "store.db", trials("forks")

    with program("fork", path, count) as forking:
        lines = await asyncio.to_thread(lines_of, forking)
    receipts = receipts_in(lines)
    assert len(receipts) == count + 1
    assert [line for line in lines if "@" not in line] == ["refused\n"] * 4 * count
    acknowledged = await check_acknowledged(path, receipts)
    await check_store(path)
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
            await check_store(path)
        jumps += clock.jumps_back
    assert jumps > count
    report("clocks", {"clocks": count, "jumps back": jumps})
