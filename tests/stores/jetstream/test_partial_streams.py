"""Streams of which a part is missing or doubled: waited for, doubted, or a telling error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import pytest

from eventctx.errors import LogCorrupted, StoreUnavailable
from eventctx.log.record import Draft, Record
from eventctx.log.store import ANY
from eventctx.stores.jetstream import verifying
from eventctx.stores.jetstream.append import UnitAppend, pack
from eventctx.stores.jetstream.connection import Outgoing
from eventctx.stores.jetstream.global_scan import GlobalScan
from eventctx.stores.jetstream.layout import DeletionLedger, Names, encode
from eventctx.stores.jetstream.reading import SessionReader
from eventctx.stores.jetstream.registry import inspect
from eventctx.stores.jetstream.retrying_reads import CollectingClient, RetryingReads
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.stores.rules import chain
from eventctx.testing.store_contract.drafts import make_draft
from tests.services.nats_server import Cluster
from tests.stores.jetstream.conftest import connected, fresh_name

pytestmark = pytest.mark.slow


class Hand(NamedTuple):
    """A store, and a client that writes into its stream without the store's write side."""

    store: JetStreamStore
    client: CollectingClient
    names: Names

    def reader(self, patience: float = 10.0) -> SessionReader:
        """A read side that has seen nothing yet."""
        return SessionReader(RetryingReads(self.client, self.names, patience))

    async def append(self, session: str, *texts: str) -> int:
        """Append one record by the store; the sequence of its unit."""
        done = await self.store.append(session, [make_draft(*texts)], ANY)
        return done.records[0].global_position // 1024

    def messages(self, position: int, digest: bytes, draft: Draft) -> Sequence[Outgoing]:
        """A unit of "s" and its bodies: a record at ``position``, after ``digest``."""
        unit = UnitAppend("s", position, [draft], chain("s", digest, position, [draft]))
        return pack(self.names, unit, 2**20).messages

    async def put(self, messages: Sequence[Outgoing]) -> None:
        """Store messages, one by one."""
        for one in messages:
            await self._ask(one.subject, one.payload, dict(one.headers) or None)

    async def remove(self, sequence: int) -> None:
        """Delete a message, which the ledger does not know of."""
        request = json.dumps({"seq": sequence}).encode()
        await self._ask(f"$JS.API.STREAM.MSG.DELETE.{self.names.stream(0)}", request)

    async def allow(self, total: int) -> None:
        """Enter in the ledger that so many messages may be missing."""
        await self._ask(self.names.of_shard("d", 0), encode(DeletionLedger(total)))

    async def _ask(self, subject: str, payload: bytes, headers: Any = None) -> None:
        answer = await self.client.request(subject, payload, 60, False, headers)
        assert "error" not in json.loads(answer.data), answer.data


@pytest.fixture
async def hand(jetstream: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hand]:
    monkeypatch.setattr(verifying, "_SETTLED_SECONDS", 0.2)
    name = fresh_name()
    store = await JetStreamStore.open(jetstream.url(name))
    async with connected(jetstream.servers) as client:
        yield Hand(store, client, Names(name, 1))
    await store.close()


async def read_all(reader: SessionReader) -> list[Record]:
    scan = await GlobalScan(reader, None).scan()
    found: list[Record] = []
    while page := await scan.page():
        found += page
    return found


async def read(reader: SessionReader, **ranged: Any) -> list[Record]:
    scan = await reader.scan("s", **ranged)
    found: list[Record] = []
    while page := await scan.page():
        found += page
    return found


async def test_a_session_that_is_gone_and_was_not_deleted_is_an_error(hand: Hand) -> None:
    places = [await hand.append(f"s{number}", str(number)) for number in range(10)]
    await hand.remove(places[6])
    with pytest.raises(LogCorrupted, match="lacks 1"):
        await read_all(hand.reader())
    await hand.allow(1)
    left = await read_all(hand.reader())
    assert [r.stream for r in left] == [f"s{n}" for n in range(10) if n != 6]
    found = await inspect(hand.reader())
    assert found.findings == ("'s6' is in the registry, and has no record",)


async def test_what_the_leader_lacks_is_an_error_that_says_what_is_missing(hand: Hand) -> None:
    places = [await hand.append("s", str(number)) for number in range(6)]
    await hand.remove(places[3])
    reader = hand.reader()
    with pytest.raises(LogCorrupted, match=r"lacks 1 of the messages"):
        await read(reader)
    await hand.allow(1)
    with pytest.raises(LogCorrupted, match=r"records from 3 to 3 are missing"):
        await read(reader)
    assert [r.position for r in await read(reader, stop=2)] == [0, 1, 2]
    assert [r.position for r in await read(reader, start=4)] == [4, 5]
    await hand.remove(places[5] + 1)
    await hand.allow(2)
    with pytest.raises(LogCorrupted, match=r"content 0 is missing"):
        await read(reader, start=4)


async def test_two_records_of_one_position_are_an_error(hand: Hand) -> None:
    first = await hand.store.append("s", [make_draft("a")], ANY)
    second = await hand.store.append("s", [make_draft("b")], 0)
    await hand.put(hand.messages(1, first.receipt.digest, make_draft("other b")))
    await hand.put(hand.messages(2, second.receipt.digest, make_draft("c")))
    with pytest.raises(LogCorrupted, match="other records of its place"):
        await read(hand.reader())


@pytest.mark.parametrize("of_one", [False, True], ids=["all sessions", "one session"])
async def test_an_append_that_a_leader_has_in_part_is_waited_for(hand: Hand, of_one: bool) -> None:
    done = await hand.store.append("s", [make_draft("first")], ANY)
    unit, *bodies = hand.messages(1, done.receipt.digest, make_draft("second", "third"))
    await hand.put([unit])
    reader = hand.reader(60.0)
    reading = asyncio.create_task(reader.records("s", 0, 1) if of_one else read_all(reader))
    async with asyncio.timeout(60):
        while reader.short_reads < 9:  # the replicas were asked, and the leader
            ended, _ = await asyncio.wait({reading}, timeout=0.01)
            assert not ended
    await hand.put(bodies)
    assert [[body.data for body in one.bodies] for one in await reading] == [
        [b"first"],
        [b"second", b"third"],
    ]


@pytest.mark.parametrize("of_one", [False, True], ids=["all sessions", "one session"])
async def test_an_append_whose_end_never_comes_is_a_doubt_and_no_damage(
    hand: Hand, of_one: bool
) -> None:
    done = await hand.store.append("s", [make_draft("first")], ANY)
    await hand.put(hand.messages(1, done.receipt.digest, make_draft("second"))[:1])
    reader = hand.reader(0.5)
    with pytest.raises(StoreUnavailable, match="missing; its leader"):
        await (reader.records("s", 0, 1) if of_one else read_all(reader))
