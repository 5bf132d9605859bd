"""A store of several shards keeps the contract, but for the order between sessions.

Global positions and the list of sessions rise with the places in each shard. So between sessions of
different shards they do not tell what was appended first, and the contract's tests that compare
such an order are replaced by ones that do not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eventctx.errors import StreamNotFound
from eventctx.log.record import Record
from eventctx.log.store import NO_STREAM, Address, EventStore
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract import StoreContract
from eventctx.testing.store_contract.drafts import gather, make_draft
from tests.services.nats_server import Cluster
from tests.stores.jetstream.conftest import fresh_name


def by_session(records: list[Record]) -> dict[str, list[int]]:
    """The positions of each session's records, in the order in which they came."""
    found: dict[str, list[int]] = {}
    for record in records:
        found.setdefault(record.stream, []).append(record.position)
    return found


class TestSeveralShards(StoreContract):
    """The contract with three shards."""

    @pytest.fixture
    async def store(self, jetstream: Cluster) -> AsyncIterator[EventStore]:
        opened = await JetStreamStore.open(jetstream.url(fresh_name(), shards=3))
        yield opened
        await opened.close()

    async def test_an_erasure_reaches_the_parent_and_all_its_forks(self, store: EventStore) -> None:
        await store.append("p", [make_draft("secret"), make_draft("b")], NO_STREAM)
        await store.fork("p", 1, "f", make_draft("c"))
        await store.fork("f", 0, "g", make_draft("d"))
        assert (await store.erase({"f": {Address(0): b""}})).bodies == 1
        for name in ("p", "f", "g"):
            assert (await anext(store.read(name))).bodies[0].erased
        found = {r.bodies[0].data for r in await gather(store.read_all())}
        assert found == {None, b"b", b"c", b"d"}

    async def test_read_all_gives_every_record_once_in_rising_global_order(
        self, store: EventStore
    ) -> None:
        for n in range(4):
            await store.append("a", [make_draft(), make_draft()], n * 2 - 1)
            await store.append("b", [make_draft()], n - 1)
        await store.fork("a", 3, "c", make_draft())
        everything = await gather(store.read_all())
        assert by_session(everything) == {"a": list(range(8)), "b": list(range(4)), "c": [4]}
        places = [record.global_position for record in everything]
        assert places == sorted(set(places))
        for at in range(0, len(places), 3):
            assert await gather(store.read_all(after=places[at])) == everything[at + 1 :]
        assert await gather(store.read_all(after=places[4], limit=3)) == everything[5:8]

    async def test_what_is_appended_behind_a_read_of_all_has_higher_positions(
        self, store: EventStore
    ) -> None:
        met: set[tuple[str, int]] = set()
        last = -1
        for number in range(12):
            await store.append(f"s{number % 5}", [make_draft()], number // 5 - 1)
            for record in await gather(store.read_all(after=last)):
                assert record.global_position > last
                last = record.global_position
                met.add((record.stream, record.position))
        assert len(met) == 12

    async def test_head_and_streams_tell_where_each_stream_stands(self, store: EventStore) -> None:
        for name in ("b", "a"):
            await store.append(name, [make_draft()], NO_STREAM)
        await store.fork("b", 0, "c", make_draft())
        infos = [info async for info in store.streams()]
        assert {info.stream for info in infos} == {"a", "b", "c"}
        for info in infos:
            assert await store.head(info.stream) == info

    async def test_streams_come_in_pages_that_begin_behind_any_stream(
        self, store: EventStore
    ) -> None:
        for n in range(12):
            await store.append(f"s{n:02}", [make_draft()], NO_STREAM)
        everything = [info.stream async for info in store.streams()]
        assert sorted(everything) == [f"s{n:02}" for n in range(12)]
        for at, name in enumerate(everything):
            page = [info.stream async for info in store.streams(after=name, limit=3)]
            assert page == everything[at + 1 : at + 4]
        with pytest.raises(StreamNotFound, match="nothing"):
            await anext(store.streams(after="nothing", limit=1))
