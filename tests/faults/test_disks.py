"""A disk without space, and operations that fail, each in turn: only typed errors, and no loss.

What an await returned a receipt for is there: while the disk fails, when it is well again, and
after the store was opened anew. Every error but ``StoreFull`` would end the program that fills a
disk with a traceback, which the test refuses.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import EventctxError
from tests.faults.counts import report, trials
from tests.faults.disks import FailingDisk, Failure, Operation, small_disk
from tests.faults.given import scratch
from tests.faults.processes import check_acknowledged, check_store, lines_of, program, receipts_in
from tests.how_much import some
from tests.sessions import user

pytestmark = pytest.mark.slow


async def fill_up(path: Path, limit: object) -> int:
    """Run the program against a limit, and check the store; how many records it acknowledged."""

    with program("fill", path, limit) as filling:
        lines = await asyncio.to_thread(lines_of, filling)
    assert [line for line in lines if "@" not in line] == ["full\n", "read\n", "again\n"]
    acknowledged = await check_acknowledged(path, receipts_in(lines))
    await check_store(path)
    return acknowledged


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX limits")
async def test_a_limit_of_file_size_loses_nothing(tmp_path: Path) -> None:
    chance, acknowledged = random.Random(1), 0
    count = trials("limits of file size")
    for number in range(count):
        limit = chance.randrange(150_000, 1_500_000)
        acknowledged += await fill_up(tmp_path / f"{number}.db", limit)
    found = {"limits": count, "acknowledged records": acknowledged, "lost": 0}
    report("limits of file size", found)


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX limits")
async def test_a_full_disk_loses_nothing() -> None:
    chance, acknowledged = random.Random(2), 0
    count = trials("full disks")
    for _ in range(count):
        with small_disk(chance.randrange(2_000, some(3_000, 6_000))) as folder:
            ballast = folder / "ballast"
            ballast.write_bytes(bytes(1_200_000))
            acknowledged += await fill_up(folder / "store.db", ballast)
    report("full disks", {"disks": count, "acknowledged records": acknowledged, "lost": 0})


SESSIONS = ("a", "b", "c")
FAILURES: tuple[Operation, ...] = ("write", "sync", "truncate")


class Work:
    """Sessions that write whatever the disk does; notes what was acknowledged and what was not."""

    def __init__(self) -> None:
        self.acknowledged: list[eventctx.Receipt] = []
        self.refused: Counter[str] = Counter()
        self.texts: dict[str, list[str]] = {name: [] for name in SESSIONS}

    async def write(self, engine: Engine, name: str, first: int, count: int) -> None:
        context = await engine.session(name, max_tokens=1_500, on_overflow="send_floor")
        for number in range(first, first + count):
            text = f"{name} {number} " + "x" * (200 if number % 7 else 30_000)
            with self.only_typed_errors():
                async with context.turn() as turn, turn.iteration():
                    self.acknowledged.append(await context.add_message(user(text)))
                    self.texts[name].append(text)
                    await context.get_messages_for_request()

    async def read(self, engine: Engine) -> None:
        """Assert that every acknowledged message is in its transcript, in order and once."""
        for name in SESSIONS:
            with self.only_typed_errors():
                found = await engine.transcript(name)
                wanted = iter([one.message["content"] for one in found if one.message])
                assert all(text in wanted for text in self.texts[name]), f"{name}: not in order"

    @contextmanager
    def only_typed_errors(self) -> Iterator[None]:
        """Count those; nothing else may be an answer."""
        try:
            yield
        except EventctxError as error:
            self.refused[type(error).__name__] += 1


async def fail_once(path: Path, failure: Failure) -> Work:
    """One run with one failure. Raises AssertionError for a promise that was broken."""
    work = Work()
    with FailingDisk() as disk:
        async with eventctx.open(path, receipts=False) as engine:
            for name in SESSIONS:
                await work.write(engine, name, 0, 2)
            disk.begin(failure)
            await asyncio.gather(*(work.write(engine, name, 2, 12) for name in SESSIONS))
            await work.read(engine)
            if failure.operation == "truncate":  # an erasure empties the log
                work.texts["a"].pop(0)
                with work.only_typed_errors():
                    await engine.erase("a", [0])
            disk.begin(None)
            before = len(work.acknowledged)
            refused = work.refused.total()
            await asyncio.gather(*(work.write(engine, name, 20, 2) for name in SESSIONS))
            # A session may first have to say that an earlier, unawaited record was not written.
            assert len(work.acknowledged) > before, work.refused
            assert work.refused.total() <= refused + len(SESSIONS), work.refused
            await work.read(engine)
        work.refused["failed operations"] = disk.failed
    await check_acknowledged(path, work.acknowledged)
    await check_store(path)
    return work


async def fail_often(count: int, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    shown: Counter[str] = Counter()
    for number in range(count):
        operation = FAILURES[number % 3]
        at = chance.randrange({"write": 120, "sync": 20, "truncate": 1}[operation])
        length = chance.choice([1, 1, 2, 10, 10**6])
        full = operation == "write" and chance.random() < 0.5
        failure = Failure(operation, at, length, full)
        with scratch() as folder:
            work = await fail_once(folder / "store.db", failure)
        shown += work.refused
        shown["acknowledged records"] += len(work.acknowledged)
    return shown


async def test_operations_that_fail_are_typed_errors_and_lose_nothing() -> None:
    count = trials("failing operations")
    shown = await fail_often(count, 1)
    assert shown["failed operations"] >= count // 3
    report("failing operations", {"failures": count, **shown, "lost": 0})
