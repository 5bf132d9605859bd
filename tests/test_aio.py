"""Waiting: begun work is finished although its waiter is cancelled; foreign code has a limit."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from eventctx.aio import end_within, finish, in_own_thread, insist


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


async def test_a_task_that_takes_too_long_is_cancelled() -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    with pytest.raises(TimeoutError, match="longer than"):
        await end_within(task, 0.2, grace=60)
    assert task.cancelled()


async def test_a_check_that_raises_ends_the_task() -> None:
    class StopNow(Exception):
        pass

    calls: list[int] = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise StopNow

    task = asyncio.ensure_future(asyncio.Event().wait())
    with pytest.raises(StopNow):
        await end_within(task, None, check, grace=60)
    assert task.cancelled()


async def test_how_a_task_ends_in_time_is_its_own_affair() -> None:
    async def fails() -> None:
        raise ValueError("no")

    task = asyncio.ensure_future(fails())
    await end_within(task, 60, grace=60)
    assert isinstance(task.exception(), ValueError)


async def test_a_task_that_ignores_its_cancellation_is_left_to_itself() -> None:
    go = asyncio.Event()

    async def work() -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    task = asyncio.ensure_future(work())
    with pytest.raises(TimeoutError):
        await end_within(task, 0.2, grace=0.2)
    assert not task.done()
    go.set()
    await task


async def test_a_function_in_its_own_thread_has_the_context_variables_of_its_caller() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")
    name.set("here")
    assert await in_own_thread(name.get, "reads") == "here"


async def test_a_function_in_its_own_thread_cannot_end_the_program() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        await in_own_thread(leave, "leaves")
