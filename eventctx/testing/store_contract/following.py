"""Subscriptions, and a store after it was closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from eventctx.errors import StoreUnavailable
from eventctx.log.record import Record
from eventctx.log.store import NO_STREAM, EventStore
from eventctx.testing.store_contract.drafts import gather, make_draft


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
        async with asyncio.timeout(20):
            await asyncio.gather(*writers)
            everything = await gather(store.read_all(bodies=False))
            for task in subscriptions:
                assert await task == everything
            assert await single == await gather(store.read("s3", start=10, bodies=False))

    async def test_a_subscription_starts_behind_what_was_handled(self, store: EventStore) -> None:
        await store.append("s", [make_draft(str(n)) for n in range(10)], NO_STREAM)
        middle = (await take(store.subscribe(), 5))[-1].global_position
        async with asyncio.timeout(10):
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
        async with asyncio.timeout(10):
            assert await live == await gather(store.read("f"))

    async def test_a_subscription_waits_for_a_stream_that_does_not_exist_yet(
        self, store: EventStore
    ) -> None:
        live = asyncio.create_task(take(store.subscribe(stream="later"), 1))
        await store.append("now", [make_draft()], NO_STREAM)
        done = await store.append("later", [make_draft("a")], NO_STREAM)
        async with asyncio.timeout(10):
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
        async with asyncio.timeout(10):
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
