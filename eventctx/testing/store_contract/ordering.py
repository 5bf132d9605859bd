"""Order and concurrency: calls, tasks, threads and event loops."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from eventctx.errors import WrongExpectedVersion
from eventctx.log.store import ANY, NO_STREAM, EventStore
from eventctx.testing.store_contract.drafts import check_chain, gather, make_draft


class OrderingContract:
    """Order and concurrency: calls, tasks, threads and event loops."""

    pytestmark = pytest.mark.asyncio

    async def test_appends_that_nobody_awaits_keep_the_order_of_the_calls(
        self, store: EventStore
    ) -> None:
        for number in range(300):
            store.append("s", [make_draft(str(number))], number - 1)
        last = await store.append("s", [make_draft("300")], 299)
        assert last.receipt.position == 300
        records = await gather(store.read("s"))
        assert [r.bodies[0].data for r in records] == [str(n).encode() for n in range(301)]

    async def test_the_awaitable_may_be_awaited_several_times_and_at_once(
        self, store: EventStore
    ) -> None:
        ack = store.append("s", [make_draft("a")], NO_STREAM)
        results = await asyncio.gather(ack, ack, asyncio.wait_for(ack, 10))
        assert results[0] == results[1] == results[2] == await ack
        failed = store.append("s", [make_draft("b")], NO_STREAM)
        for _ in range(2):
            with pytest.raises(WrongExpectedVersion):
                await failed

    async def test_an_append_that_fails_unawaited_says_nothing_and_hurts_nothing(
        self, store: EventStore
    ) -> None:
        reported: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what))
        gc.freeze()  # what others left behind is not this test's, and takes seconds to look through
        try:
            store.append("s", [make_draft("a")], 7)
            done = await store.append("s", [make_draft("b")], NO_STREAM)
            assert done.receipt.position == 0
            gc.collect()  # a future's "never retrieved" would be reported here
        finally:
            gc.unfreeze()
        assert reported == []

    async def test_a_cancelled_wait_does_not_cancel_the_append(self, store: EventStore) -> None:
        async def append() -> None:
            await store.append("s", [make_draft("a")], NO_STREAM)

        task = asyncio.create_task(append())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.append("s", [make_draft("b")], 0)
        assert len(await gather(store.read("s"))) == 2

    async def test_of_many_tasks_that_append_one_wins_each_version(self, store: EventStore) -> None:
        await store.append("s", [make_draft("start")], NO_STREAM)
        histories = []

        async def compete(name: str) -> None:
            wins: list[int] = []
            while len(wins) < 10:
                info = await store.head("s")
                assert info is not None
                try:
                    done = await store.append("s", [make_draft(name)], info.head)
                except WrongExpectedVersion as conflict:
                    assert isinstance(conflict.expected, int)
                    assert conflict.actual > conflict.expected
                    continue
                assert done.receipt.position == info.head + 1
                wins.append(done.receipt.position)
            histories.append(wins)

        await asyncio.gather(*(compete(f"task {n}") for n in range(10)))
        assert sorted(position for wins in histories for position in wins) == list(range(1, 101))
        records = await gather(store.read("s"))
        assert len(records) == 101
        check_chain(records)

    async def test_threads_with_their_own_event_loops_share_one_store(
        self, store: EventStore
    ) -> None:
        results: dict[int, list[int]] = {}

        async def work(number: int) -> None:
            own, shared = [], []
            for step in range(50):
                own.append(store.append(f"own {number}", [make_draft(str(step))], step - 1))
                shared.append((await store.append("shared", [make_draft()], ANY)).receipt.position)
            for step, ack in enumerate(own):
                assert (await ack).receipt.position == step
            assert len([r async for r in store.read(f"own {number}")]) == 50
            results[number] = shared

        threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n))) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert sorted(p for positions in results.values() for p in positions) == list(range(200))
        for name in ("shared", *(f"own {n}" for n in range(4))):
            check_chain(await gather(store.read(name)))

    async def test_an_append_made_in_one_loop_can_be_awaited_in_another(
        self, store: EventStore
    ) -> None:
        ack = store.append("s", [make_draft("a")], NO_STREAM)
        found = []

        async def wait() -> None:
            found.append(await ack)

        await asyncio.to_thread(lambda: asyncio.run(wait()))
        assert found == [await ack]
