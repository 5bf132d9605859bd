"""Appends, erasures, deletions in a store whose sessions are in three shards."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eventctx.log.store import NO_STREAM, Address, EventStore
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract.appending import AppendingContract
from eventctx.testing.store_contract.drafts import gather, make_draft
from eventctx.testing.store_contract.keeping import DestroyingContract, KeepingContract
from eventctx.testing.store_contract.ordering import OrderingContract
from tests.services.nats_server import Cluster
from tests.stores.jetstream.conftest import fresh_name

pytestmark = pytest.mark.slow


class TestThreeShards(AppendingContract, KeepingContract, OrderingContract, DestroyingContract):
    """What is written; reads and subscriptions are in ``test_shards``."""

    @pytest.fixture
    async def store(self, jetstream: Cluster) -> AsyncIterator[EventStore]:
        opened = await JetStreamStore.open(jetstream.url(fresh_name(), shards=3))
        yield opened
        await opened.close()

    async def test_an_erasure_reaches_the_parent_and_all_its_forks(self, store: EventStore) -> None:
        # The contract's test compares the order between sessions, which shards do not keep.
        await store.append("p", [make_draft("secret"), make_draft("b")], NO_STREAM)
        await store.fork("p", 1, "f", make_draft("c"))
        await store.fork("f", 0, "g", make_draft("d"))
        assert (await store.erase({"f": {Address(0): b""}})).bodies == 1
        for name in ("p", "f", "g"):
            assert (await anext(store.read(name))).bodies[0].erased
        found = {r.bodies[0].data for r in await gather(store.read_all())}
        assert found == {None, b"b", b"c", b"d"}
