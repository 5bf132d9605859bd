"""Appends of every size, by several processes, while servers are lost, and into several shards.

The order of records of sessions of several shards is fixed, but not always that of their appends.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from eventctx.log.record import make_body
from eventctx.log.store import ANY, NO_STREAM, Address
from eventctx.stores.jetstream import global_scan
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract.drafts import check_chain, gather, make_draft
from eventctx.testing.store_contract.keeping import DestroyingContract
from eventctx.testing.store_contract.ordering import FollowingContract, take
from eventctx.testing.store_contract.reading import ForkingContract
from tests.services.nats_server import Cluster
from tests.stores.jetstream.conftest import fresh_name


@pytest.fixture
async def store(jetstream: Cluster, opened: Any) -> JetStreamStore:
    return await opened(JetStreamStore.open(jetstream.url(fresh_name())))


async def test_what_is_larger_than_a_message_or_headers_is_read_whole(
    store: JetStreamStore,
) -> None:
    body = make_body(b"data", os.urandom(200_000), os.urandom)
    drafts = [
        make_draft(os.urandom(2_500_000), "small", os.urandom(1_048_576)),
        make_draft(bodies=(body,)),
        make_draft("b", payload=os.urandom(3_000_000)),
        make_draft("c"),
    ]
    done = await store.append("s", drafts, NO_STREAM)
    assert tuple(await gather(store.read("s"))) == done.records
    assert tuple(await gather(store.read_all())) == done.records
    lean = (await gather(store.read("s", bodies=False)))[1].bodies[0]
    assert (lean.facts, lean.data) == (body.facts, None)
    assert (await store.append("s", [make_draft("d")], 3)).receipt.position == 4
    check_chain(await gather(store.read("s")))


async def test_an_append_of_more_messages_than_a_batch_is_one_step(store: JetStreamStore) -> None:
    drafts = [make_draft(f"text {number}") for number in range(2300)]
    done = await store.append("s", drafts, NO_STREAM)
    assert tuple(await gather(store.read("s"))) == done.records
    assert await store.append("s", drafts, NO_STREAM) == done


async def test_appends_that_nobody_awaits_are_stored_at_the_close(jetstream: Cluster) -> None:
    url = jetstream.url(fresh_name())
    store = await JetStreamStore.open(url)
    for number in range(300):
        store.append(f"s{number % 7}", [make_draft(str(number))], ANY)
    await store.close()
    store = await JetStreamStore.open(url)
    found = [int(record.bodies[0].data or b"") async for record in store.read_all()]
    assert sorted(found) == list(range(300))
    await store.close()


async def test_a_session_written_by_several_stores_has_one_chain(jetstream: Cluster) -> None:
    url = jetstream.url(fresh_name())
    stores = [await JetStreamStore.open(url) for _ in range(3)]
    acknowledged: list[tuple[int, bytes]] = []

    async def write(store: JetStreamStore) -> None:
        for _ in range(20):
            draft = make_draft("x")
            done = await store.append("s", [draft], ANY)
            acknowledged.append((done.receipt.position, draft.id))

    await asyncio.gather(*(write(store) for store in stores))
    records = await gather(stores[0].read("s"))
    check_chain(records)
    assert [(record.position, record.id) for record in records] == sorted(acknowledged)
    for store in stores:
        await store.close()


async def test_a_subscription_that_hears_nothing_looks_by_itself(
    jetstream: Cluster, monkeypatch: pytest.MonkeyPatch, opened
) -> None:
    monkeypatch.setattr(global_scan, "POLL_SECONDS", 0.1)
    store = await opened(JetStreamStore.open(jetstream.url(fresh_name())))
    following = asyncio.create_task(take(store.subscribe(), 1))
    async with asyncio.timeout(60):
        while store._parts.following._subscription is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await store._link.run(store._parts.following._subscription.unsubscribe())
        done = await store.append("s", [make_draft()], NO_STREAM)
        assert [record.id for record in await following] == [done.records[0].id]


@pytest.mark.slow
class TestThreeShards(FollowingContract, ForkingContract, DestroyingContract):
    """What goes across shards; what happens in one session is the same with one shard."""

    @pytest.fixture
    async def store(self, jetstream: Cluster, opened: Any) -> JetStreamStore:
        return await opened(JetStreamStore.open(jetstream.url(fresh_name(), shards=3)))

    async def test_an_erasure_reaches_the_parent_and_all_its_forks(
        self, store: JetStreamStore
    ) -> None:
        await store.append("p", [make_draft("secret"), make_draft("b")], NO_STREAM)
        await store.fork("p", 1, "f", make_draft("c"))
        await store.fork("f", 0, "g", make_draft("d"))
        assert (await store.erase({"f": {Address(0): b""}})).bodies == 1
        for name in ("p", "f", "g"):
            assert (await anext(store.read(name))).bodies[0].erased
        found = {r.bodies[0].data for r in await gather(store.read_all())}
        assert found == {None, b"b", b"c", b"d"}

    async def test_sessions_of_all_shards_come_once_in_a_fixed_order(
        self, store: JetStreamStore
    ) -> None:
        names = [f"s{number}" for number in range(30)]
        for name in names:
            await store.append(name, [make_draft(name), make_draft()], NO_STREAM)
        listed = [info.stream for info in await gather(store.streams())]
        assert sorted(listed) == sorted(names)
        for after in (listed[0], listed[11], listed[28]):
            rest = [info.stream async for info in store.streams(after=after)]
            assert rest == listed[listed.index(after) + 1 :]
        everything = await gather(store.read_all())
        assert sorted((r.stream, r.position) for r in everything) == sorted(
            (name, position) for name in names for position in (0, 1)
        )
        places = [r.global_position for r in everything]
        assert places == sorted(set(places))
        for at in (0, 17, 58):
            assert await gather(store.read_all(after=places[at])) == everything[at + 1 :]

    async def test_what_was_read_stays_before_what_is_appended(self, store: JetStreamStore) -> None:
        await store.append("busy", [make_draft() for _ in range(500)], NO_STREAM)
        await store.append("busy", [make_draft() for _ in range(500)], 499)
        for number in range(9):
            last = (await gather(store.read_all()))[-1].global_position
            done = await store.append(f"late {number}", [make_draft()], NO_STREAM)
            (found,) = await take(store.subscribe(after=last), 1)
            assert found.id == done.records[0].id
