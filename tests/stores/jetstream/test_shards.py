"""A store of several shards: each session is in one, and a reader of all misses none.

The order of records of different sessions is then fixed, but not always that of their appends; the
tests of the contract that expect that are left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eventctx.log.store import NO_STREAM
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract.drafts import gather, make_draft
from eventctx.testing.store_contract.ordering import FollowingContract, take
from eventctx.testing.store_contract.reading import ForkingContract, ReadingContract
from tests.services.nats_server import Cluster
from tests.stores.jetstream.conftest import fresh_name

pytestmark = pytest.mark.slow


class TestThreeShards(ReadingContract, FollowingContract, ForkingContract):
    """Reads, subscriptions and forks of a store whose sessions are in three shards."""

    @pytest.fixture
    async def store(self, jetstream: Cluster) -> AsyncIterator[JetStreamStore]:
        opened = await JetStreamStore.open(jetstream.url(fresh_name(), shards=3))
        yield opened
        await opened.close()

    test_read_all_gives_every_record_once_in_rising_global_order = None  # type: ignore[assignment]
    test_head_and_streams_tell_where_each_stream_stands = None  # type: ignore[assignment]
    test_streams_come_in_pages_that_begin_behind_any_stream = None  # type: ignore[assignment]

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
