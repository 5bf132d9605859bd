"""A store of several shards: each session is in one, and a reader of all misses none.

The order of records of different sessions is then fixed, but not always that of their appends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eventctx.log.store import NO_STREAM, Address
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract.drafts import gather, make_draft
from eventctx.testing.store_contract.keeping import DestroyingContract
from eventctx.testing.store_contract.ordering import FollowingContract, take
from eventctx.testing.store_contract.reading import ForkingContract
from tests.services.nats_server import Cluster
from tests.stores.jetstream.conftest import fresh_name

pytestmark = pytest.mark.slow


class TestThreeShards(FollowingContract, ForkingContract, DestroyingContract):
    """What goes across shards; what happens in one session is the same with one shard."""

    @pytest.fixture
    async def store(self, jetstream: Cluster) -> AsyncIterator[JetStreamStore]:
        opened = await JetStreamStore.open(jetstream.url(fresh_name(), shards=3))
        yield opened
        await opened.close()

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

    async def test_sessions_of_all_shards_are_read_and_listed_once_in_a_fixed_order(
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

    async def test_what_was_read_stays_before_what_is_appended_later_in_any_shard(
        self, store: JetStreamStore
    ) -> None:
        await store.append("busy", [make_draft() for _ in range(500)], NO_STREAM)
        await store.append("busy", [make_draft() for _ in range(500)], 499)
        for number in range(9):
            last = (await gather(store.read_all()))[-1].global_position
            done = await store.append(f"late {number}", [make_draft()], NO_STREAM)
            (found,) = await take(store.subscribe(after=last), 1)
            assert found.id == done.records[0].id
