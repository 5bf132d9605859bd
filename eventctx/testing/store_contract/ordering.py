"""Order and concurrency (calls, tasks, threads, event loops), subscriptions, closed stores."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator

import pytest

from eventctx.errors import StoreUnavailable, WrongExpectedVersion
from eventctx.log.record import Record
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
        results = await asyncio.gather(ack, ack, asyncio.wait_for(ack, 60))
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
        collects = gc.isenabled()
        gc.disable()  # what this leaves stays in the youngest generation: others are not looked at
        try:
            store.append("s", [make_draft("a")], 7)
            done = await store.append("s", [make_draft("b")], NO_STREAM)
            assert done.receipt.position == 0
            gc.collect(0)  # a future's "never retrieved" would be reported here
        finally:
            if collects:
                gc.enable()
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


class FollowingContract:
    """Subscriptions, and a store after it was closed."""

    pytestmark = pytest.mark.asyncio

    async def test_a_subscription_hands_over_from_stored_to_live_without_gap_or_repeat(
        self, store: EventStore
    ) -> None:
        streams = [f"s{n}" for n in range(5)]
        for name in streams:
            await store.append(name, [make_draft(name) for _ in range(20)], NO_STREAM)

        async def write(name: str) -> None:
            for step in range(60):
                await store.append(name, [make_draft(), make_draft()], 19 + 2 * step)

        total = 5 * (20 + 120)
        writers = [asyncio.create_task(write(name)) for name in streams]
        subscriptions = []
        for _ in range(6):  # each begins at another moment of the writing
            subscriptions.append(asyncio.create_task(take(store.subscribe(), total)))
            for _ in range(3):
                await store.head("s0")
        single = asyncio.create_task(take(store.subscribe(stream="s3", after=9), 130))
        async with asyncio.timeout(60):
            await asyncio.gather(*writers)
            everything = await gather(store.read_all(bodies=False))
            for task in subscriptions:
                assert await task == everything
            assert await single == await gather(store.read("s3", start=10, bodies=False))

    async def test_a_subscription_starts_behind_what_was_handled(self, store: EventStore) -> None:
        await store.append("s", [make_draft(str(n)) for n in range(10)], NO_STREAM)
        middle = (await take(store.subscribe(), 5))[-1].global_position
        async with asyncio.timeout(60):
            rest = await take(store.subscribe(after=middle, bodies=True), 5)
        assert [r.bodies[0].data for r in rest] == [b"5", b"6", b"7", b"8", b"9"]

    async def test_a_subscription_to_a_fork_begins_with_what_it_inherits(
        self, store: EventStore
    ) -> None:
        await store.append("p", [make_draft("a"), make_draft("b"), make_draft("c")], NO_STREAM)
        await store.fork("p", 1, "f", make_draft("mine"))
        await store.append("p", [make_draft("not mine")], 2)
        live = asyncio.create_task(take(store.subscribe(stream="f", bodies=True), 4))
        await store.append("f", [make_draft("mine too")], 2)
        async with asyncio.timeout(60):
            assert await live == await gather(store.read("f"))

    async def test_a_subscription_waits_for_a_stream_that_does_not_exist_yet(
        self, store: EventStore
    ) -> None:
        live = asyncio.create_task(take(store.subscribe(stream="later"), 1))
        await store.append("now", [make_draft()], NO_STREAM)
        done = await store.append("later", [make_draft("a")], NO_STREAM)
        async with asyncio.timeout(60):
            (record,) = await live
        assert (record.stream, record.digest) == ("later", done.receipt.digest)

    async def test_a_subscription_ends_when_the_store_is_closed(self, store: EventStore) -> None:
        await store.append("s", [make_draft()], NO_STREAM)
        seen = asyncio.Event()
        found = []

        async def follow() -> None:
            async for record in store.subscribe():
                found.append(record.position)
                seen.set()

        task = asyncio.create_task(follow())
        async with asyncio.timeout(60):
            await seen.wait()
            await store.close()
            await task
        assert found == [0]

    async def test_after_closing_everything_raises_store_unavailable(
        self, store: EventStore
    ) -> None:
        await store.append("s", [make_draft()], NO_STREAM)
        await store.close()
        await store.close()
        late = store.append("s", [make_draft()], 0)
        with pytest.raises(StoreUnavailable, match="closed"):
            await late
        with pytest.raises(StoreUnavailable):
            await store.head("s")
        with pytest.raises(StoreUnavailable):
            await anext(store.read("s"))
        with pytest.raises(StoreUnavailable):
            await store.fork("s", 0, "f", make_draft())
        with pytest.raises(StoreUnavailable):
            await store.save_checkpoint("c", 1)
        assert [r async for r in store.subscribe()] == []


async def take(subscription: AsyncIterator[Record], count: int) -> list[Record]:
    """The first ``count`` records of a subscription, which is closed afterwards."""
    found = []
    async for record in subscription:
        found.append(record)
        if len(found) == count:
            break
    close = getattr(subscription, "aclose", None)
    if close is not None:
        await close()
    return found
