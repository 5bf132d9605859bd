"""What was begun is finished although the task that waits for it is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from eventctx.aio import finish, insist


async def test_work_is_done_before_its_waiter_is_cancelled() -> None:
    go, done = asyncio.Event(), []

    async def work() -> str:
        await go.wait()
        done.append(1)
        return "done"

    task = asyncio.create_task(finish(work()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [1]
    assert await finish(work()) == "done"


async def test_the_cancellation_says_what_the_work_raised() -> None:
    go = asyncio.Event()

    async def work() -> None:
        await go.wait()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        go.set()
        await finish(work())
    go.clear()

    async def wait() -> None:
        try:
            await finish(work())
        except asyncio.CancelledError as error:
            assert isinstance(error.__cause__, ValueError)
            raise

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_work_that_takes_longer_than_its_grace_is_cancelled_too() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    task = asyncio.create_task(finish(work(), grace=0.2))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]


async def test_an_emit_that_is_cancelled_before_it_appended_is_made_again() -> None:
    room, appended = asyncio.Event(), []

    async def emit() -> None:
        await room.wait()
        appended.append(1)

    task = asyncio.create_task(insist(emit))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
    room.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert appended == [1]
