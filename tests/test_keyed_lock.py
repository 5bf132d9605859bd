"""A lock per name, held by one task at a time, of whichever thread and event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import Thread
from typing import Any

import pytest

from eventctx.aio import KeyedLock

ROUNDS = 40


class Counted:
    """A block that notes how many are in it at the same time."""

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


async def test_callers_get_it_in_the_order_in_which_they_came() -> None:
    lock, order = KeyedLock(), list[int]()

    async def take(number: int) -> None:
        async with lock("name"):
            order.append(number)

    async with lock("name"):
        waiting = [asyncio.create_task(take(number)) for number in range(3)]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2]


async def test_a_waiter_that_gives_up_leaves_it_to_the_others() -> None:
    lock, counted = KeyedLock(), Counted()
    async with lock("name"):
        first, second = [asyncio.create_task(counted.run(lock, "name")) for _ in range(2)]
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    await asyncio.wait_for(second, 60)
    assert counted.done == 1


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
