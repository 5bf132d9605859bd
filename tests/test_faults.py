"""A killed process, a full disk, a cancelled call: what was acknowledged is there."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import apsw
import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import EventctxError, StoreFull
from eventctx.log.events import PlanEnd, PlanStart
from eventctx.log.record import Draft
from eventctx.log.store import Appended, Expected, Receipt
from eventctx.stores.ack import Ack
from eventctx.stores.memory import MemoryStore
from tests.children import started

ROOT = Path(__file__).resolve().parents[1]
AGENT = Path(__file__).with_name("programs") / "agent.py"
USER = {"role": "user", "content": "hello"}


def agent(*arguments: object) -> AbstractContextManager[subprocess.Popen[str]]:
    command = [sys.executable, AGENT, *arguments]
    return started(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


@pytest.mark.slow
async def test_whatever_was_acknowledged_before_a_kill_is_there_after_it(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    draw = random.Random(7)  # noqa: S311
    seen: list[Receipt] = []
    for _ in range(4):
        with agent(path) as process:
            assert process.stdout is not None
            count = draw.randint(3, 60)
            seen += [Receipt.parse(process.stdout.readline().strip()) for _ in range(count)]
            process.send_signal(signal.SIGKILL)
            seen += [Receipt.parse(line.strip()) for line in process.stdout if line.endswith("\n")]
        async with eventctx.open(path) as engine:
            for receipt in seen[-5:]:
                assert (await engine.verify("s", receipt)).ok
            digests = {r.position: r.digest async for r in engine.records("s")}
            assert all(digests[receipt.position] == receipt.digest for receipt in seen)
            transcript = await engine.transcript("s")
            told = [int(m.message["content"].split()[0]) for m in transcript if m.message]
            assert told == list(range(len(told)))
            assert len(told) >= len(seen)
            audit = await engine.audit("s")
            assert {row.outcome for row in audit.compactions} <= {"applied"}


@pytest.mark.slow
async def test_a_full_disk_is_a_clear_error_and_the_session_goes_on_afterwards(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.db"
    with agent(path, 900_000) as process:
        assert process.stdout is not None
        lines = [line.strip() for line in process.stdout]
        assert process.wait(60) == 0
    (full,) = [line for line in lines if line.startswith("FULL")]
    assert "space" in full or "full" in full
    receipts = [Receipt.parse(line) for line in lines if line != full]
    assert len(receipts) >= 10
    async with eventctx.open(path) as engine:
        digests = {r.position: r.digest async for r in engine.records("s")}
        assert all(digests[receipt.position] == receipt.digest for receipt in receipts)
        assert (await engine.verify("s", receipts[-1])).ok
        last = (await engine.transcript("s"))[-1]
        assert last.message == {"role": "user", "content": "after"}
        types = [record.type async for record in engine.records("s")]
        assert types.count("prompt:submit") == types.count("prompt:complete")


class Failing(MemoryStore):
    """A store whose next appends fail as a full disk makes them fail."""

    failures = 0

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        if self.failures:
            self.failures -= 1
            return Ack.failed(StoreFull("no space left on the disk"))
        return super().append(stream, drafts, expected)


async def test_an_unwritten_activity_event_is_raised_by_the_next_awaited_call() -> None:
    store = Failing()
    engine = Engine(store)
    ctx = await engine.session("s")
    store.failures = 1  # the event rides on the message, so one append holds both
    await ctx.emit(PlanStart())
    with pytest.raises(StoreFull):
        await ctx.add_message(USER)
    await ctx.add_message(USER)
    await ctx.emit(PlanEnd())
    await ctx.close()
    types = [record.type async for record in engine.records("s")]
    assert types == ["session:start", "plan:start", "context:message_added", "plan:end"]


async def test_a_turn_that_cannot_begin_leaves_no_trace_of_itself() -> None:
    store = Failing()
    engine = Engine(store)
    ctx = await engine.session("s")
    store.failures = 1
    with pytest.raises(StoreFull):
        async with ctx.turn("never"):
            raise AssertionError("the block must not run")
    await ctx.add_message(USER)
    assert [record.turn_id async for record in engine.records("s")] == [None, None]


async def test_a_failed_append_leaves_nothing_and_the_view_is_read_again() -> None:
    store = Failing()
    engine = Engine(store)
    ctx = await engine.session("s")
    await ctx.add_message(USER)
    for call in (
        lambda: ctx.add_message({"role": "user", "content": "lost"}),
        lambda: ctx.get_messages_for_request(),
        lambda: ctx.set_messages([]),
        lambda: ctx.clear(),
        lambda: ctx.pin(0),
    ):
        store.failures = 1
        with pytest.raises(StoreFull):
            await call()
        assert await ctx.get_messages() == [USER]
        assert await ctx.get_token_count() > 0
    assert await ctx.get_messages_for_request() == [USER]
    assert (await engine.verify("s")).ok


async def test_cancelling_a_call_leaves_a_sound_session(tmp_path: Path) -> None:
    async with eventctx.open(tmp_path / "c.db") as engine:
        ctx = await engine.session("s", max_tokens=2_000)
        for number in range(60):
            message = {"role": "user", "content": f"{number} " + "x" * 300}
            task = asyncio.ensure_future(
                ctx.add_message(message) if number % 3 else ctx.get_messages_for_request()
            )
            for _ in range(number % 4):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await ctx.add_message(USER)
        messages = await ctx.get_messages()
        assert messages[-1] == USER
        assert (await ctx.get_messages_for_request())[-1] == USER
        assert (await engine.verify("s")).ok


@pytest.mark.parametrize("where", ["payload", "data", "digest", "salt"])
async def test_a_flipped_byte_in_the_file_is_found_and_named(tmp_path: Path, where: str) -> None:
    path = tmp_path / "c.db"
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s")
        for number in range(20):
            await ctx.add_message({"role": "user", "content": f"message {number}"})
    connection = apsw.Connection(str(path))
    columns = [row[1] for row in connection.execute("PRAGMA table_info(records)")]
    column = next(c for c in columns if where in c and (where != "digest" or "body" not in c))
    (stored,) = next(iter(connection.execute(f"SELECT {column} FROM records WHERE position = 9")))  # noqa: S608
    flipped = bytes([stored[0] ^ 1]) + bytes(stored[1:])
    connection.execute(f"UPDATE records SET {column} = ? WHERE position = 9", (flipped,))  # noqa: S608
    connection.close()
    async with eventctx.open(path) as engine:
        found = await engine.verify("s")
        assert not found.ok
        assert 9 in {problem.position for problem in found.problems}


@pytest.mark.parametrize("content", [b"not a database at all" * 400, b"\x00" * 8192, b"SQLite f"])
async def test_a_file_that_is_no_store_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "c.db"
    path.write_bytes(content)
    with pytest.raises(EventctxError, match=r"c\.db") as caught:
        await eventctx.open(path)
    assert path.read_bytes() == content
    assert "expected" in str(caught.value) or "not" in str(caught.value)


async def test_a_missing_store_is_not_made_when_it_is_only_to_be_read(tmp_path: Path) -> None:
    opening: Any = eventctx.open(tmp_path / "none.db", create=False)
    with pytest.raises(EventctxError, match=r"none\.db"):
        await opening
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240
