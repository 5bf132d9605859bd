"""Subscriptions of a JetStream store while servers are lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eventctx.log.store import NO_STREAM
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract.drafts import gather, make_draft
from eventctx.testing.store_contract.ordering import take
from tests.services.in_memory import memory_folder
from tests.services.nats_server import Cluster, running
from tests.stores.jetstream.conftest import fresh_name

pytestmark = pytest.mark.slow


async def test_subscriptions_survive_the_loss_of_each_server_in_turn(nats_binary: Path) -> None:
    with running(binary=nats_binary, place=memory_folder()) as cluster:
        reading = await JetStreamStore.open(cluster.url("FOLLOWED"), patience=120)
        writing = await JetStreamStore.open(cluster.url("FOLLOWED"), patience=120)
        await writing.append("s", [make_draft() for _ in range(10)], NO_STREAM)
        all_of_them = asyncio.create_task(take(reading.subscribe(), 70))
        of_one = asyncio.create_task(take(reading.subscribe(stream="s", after=4), 65))
        last = 9
        left = [0, 1, 2]
        while left:
            # The leader dies first, and then a server that does not lead: elections take seconds.
            leader = await asyncio.to_thread(cluster.leader, "FOLLOWED_0")
            followers = [one for one in left if one != leader]
            number = leader if len(left) == 3 else (followers or left)[0]
            left.remove(number)
            for _ in range(10):
                last += 1
                await writing.append("s", [make_draft()], last - 1)
            cluster.kill(number)
            for _ in range(10):
                last += 1
                await writing.append("s", [make_draft()], last - 1)
            if left:
                await asyncio.to_thread(cluster.start, number)
        async with asyncio.timeout(60):
            records = await gather(reading.read("s", bodies=False))
            assert await all_of_them == records
            assert await of_one == records[5:]
        await reading.close()
        await writing.close()


async def test_a_subscription_that_hears_nothing_looks_by_itself(jetstream: Cluster) -> None:
    store = await JetStreamStore.open(jetstream.url(fresh_name()))
    following = asyncio.create_task(take(store.subscribe(), 1))
    async with asyncio.timeout(60):
        while store._parts.following._subscription is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await store._link.run(store._parts.following._subscription.unsubscribe())
        done = await store.append("s", [make_draft()], NO_STREAM)
        assert [record.id for record in await following] == [done.records[0].id]
    await store.close()
