"""Waiting: begun work is finished although its waiter is cancelled; foreign code has a limit."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from eventctx.aio import end_within, finish, in_own_thread, insist


async def test_work_is_done_before_its_waiter_is_cancelled() -> None:
    go, done = asyncio.Event(), []

    async def work() -> str:
        await go.wait()
        done.append(1)
        return "done"

    task = asyncio.create_task(finish(work()))
    for _ in range(2):
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

    task = asyncio.create_task(finish(work()))
    await asyncio.sleep(0)
    task.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError) as told:
        await task
    assert isinstance(told.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="no"):
        await finish(work())


async def test_work_that_takes_longer_than_its_grace_is_cancelled_too() -> None:
    work = asyncio.ensure_future(asyncio.Event().wait())
    task = asyncio.create_task(finish(work, grace=0.2))
    for _ in range(2):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.cancelled()


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
    check: Any = ["first", "second"].pop  # the third time, nothing is left
    task = asyncio.ensure_future(asyncio.Event().wait())
    with pytest.raises(IndexError):
        await end_within(task, None, check, grace=60)
    assert task.cancelled()


async def test_how_a_task_ends_in_time_is_its_own_affair() -> None:
    task = asyncio.ensure_future(asyncio.wait_for(asyncio.Event().wait(), 0))
    await end_within(task, 60, grace=60)
    assert isinstance(task.exception(), TimeoutError)


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
