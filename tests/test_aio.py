"""Waiting: begun work is finished although its waiter is cancelled, foreign code has a limit, and a
lock per name is held by one task at a time, of whichever thread and event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from contextlib import suppress
from threading import Thread
from typing import Any

import pytest

from eventctx.aio import KeyedLock, end_within, finish, in_own_thread, insist


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
    work: Any = asyncio.ensure_future(asyncio.Event().wait())
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


async def test_a_task_that_takes_too_long_or_whose_check_raises_is_cancelled() -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    with pytest.raises(TimeoutError, match="longer than"):
        await end_within(task, 0.2, grace=60)
    assert task.cancelled()
    check: Any = ["first", "second"].pop  # the third time, nothing is left
    task = asyncio.ensure_future(asyncio.Event().wait())
    with pytest.raises(IndexError):
        await end_within(task, None, check, grace=60)
    assert task.cancelled()
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


async def test_a_function_in_its_own_thread_has_its_callers_context_and_ends_nothing() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")
    name.set("here")
    assert await in_own_thread(name.get, "reads") == "here"
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        await in_own_thread(lambda: sys.exit(3), "leaves")


# -- a lock per name -------------------------------------------------------------------------------


ROUNDS = 40


class Counted:
    def __init__(self) -> None:
        self.inside = self.most = self.done = 0

    async def run(self, lock: KeyedLock, name: str) -> None:
        async with lock(name):
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0)
            self.inside -= 1
            self.done += 1


def test_tasks_of_several_loops_hold_a_name_one_after_the_other() -> None:
    lock, counted = KeyedLock(), Counted()

    async def many() -> None:
        await asyncio.gather(*[counted.run(lock, "name") for _ in range(ROUNDS)])

    threads = [Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert (counted.most, counted.done) == (1, 4 * ROUNDS)
    assert lock._held == {}


async def test_different_names_do_not_wait_for_each_other_and_an_error_releases_one() -> None:
    lock = KeyedLock()
    with pytest.raises(ValueError, match="broken"):
        async with lock("one"):
            raise ValueError("broken")
    async with lock("one"), asyncio.timeout(60), lock("another"):
        pass


async def test_callers_get_it_in_the_order_in_which_they_came_but_for_one_that_gave_up() -> None:
    lock, order = KeyedLock(), list[int]()

    async def take(number: int) -> None:
        async with lock("name"):
            order.append(number)

    async with lock("name"):
        given_up, *waiting = [asyncio.create_task(take(number)) for number in range(4)]
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert order == [1, 2, 3]


async def test_a_release_in_another_thread_between_a_look_and_a_wait_is_not_missed() -> None:
    lock = KeyedLock()
    held = lock("name")
    await held.__aenter__()

    class ReleasedMeanwhile(list[Any]):
        """Waiters to whom one is added just after the holder has told all of them."""

        def append(self, waiter: Any) -> None:
            with suppress(StopIteration):
                held.__aexit__().send(None)
            super().append(waiter)

    held._waiters = ReleasedMeanwhile()
    async with asyncio.timeout(60), lock("name"):
        pass
    assert lock._held == {}
