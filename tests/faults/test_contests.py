"""Processes work on one session: no gap, nothing lost, nothing twice, everybody gets on."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

import eventctx
from eventctx.log.codec import decode_event
from eventctx.log.record import Record
from tests.faults.counts import report, trials
from tests.faults.given import scratch
from tests.faults.processes import (
    check_the_store,
    check_what_was_acknowledged,
    program,
    receipts_in,
)
from tests.how_much import some

pytestmark = pytest.mark.slow

PROCESSES = some(4, 8)
MESSAGES = 12


def compete(path: Path) -> list[str]:
    """What processes printed that ran at once."""
    with ExitStack() as running:
        contenders = [
            running.enter_context(program("contender.py", path, f"p{number}", MESSAGES))
            for number in range(PROCESSES)
        ]
        lines: list[str] = []
        for one in contenders:
            output, errors = one.communicate(timeout=240)
            assert errors == ""
            lines += output.splitlines(keepends=True)
    return lines


def presumed(record: Record) -> bool:
    """Whether a process took another one's turn for lost, which it found open when it came."""
    return getattr(decode_event(record), "status", None) == "lost"


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
        types = Counter(record.type for record in records if not presumed(record))
        assert types["prompt:submit"] == types["prompt:complete"] == PROCESSES * MESSAGES
        assert types["context:pre_compact"] == types["context:post_compact"]


async def test_processes_on_one_session_lose_and_repeat_nothing() -> None:
    found: Counter[str] = Counter()
    for _ in range(trials("contests")):
        with scratch() as folder:
            path = folder / "store.db"
            lines = await asyncio.to_thread(compete, path)
            receipts = receipts_in(lines)
            assert len(receipts) == PROCESSES * MESSAGES
            assert len({one.position for one in receipts}) == len(receipts)
            found["acknowledged records"] += await check_what_was_acknowledged(path, receipts)
            found["conflicts of compactions"] += sum(
                int(line.split()[1]) for line in lines if line.startswith("beaten")
            )
            await check_the_session(path)
            await check_the_store(path)
        found["contests"] += 1
    report("contests", found)
