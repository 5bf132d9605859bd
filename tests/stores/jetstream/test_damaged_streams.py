"""Streams and replicas of which a part is missing or doubled: waited for, doubted, or an error."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eventctx.errors import LogCorrupted, StoreUnavailable
from eventctx.log.record import Draft, Record
from eventctx.log.store import ANY, NO_STREAM
from eventctx.stores.jetstream import verifying
from eventctx.stores.jetstream.append import UnitAppend, pack
from eventctx.stores.jetstream.connection import Outgoing
from eventctx.stores.jetstream.global_scan import GlobalScan
from eventctx.stores.jetstream.layout import DeletionLedger, Names, encode
from eventctx.stores.jetstream.reading import SessionReader
from eventctx.stores.jetstream.registry import Registry, inspect
from eventctx.stores.jetstream.retrying_reads import CollectingClient, RetryingReads
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.stores.rules import chain
from eventctx.testing.store_contract.drafts import check_chain, make_draft
from tests.services.fixtures import one_process
from tests.services.in_memory import memory_folder
from tests.services.nats_server import Cluster, Node, running
from tests.stores.jetstream.conftest import connected, fresh_name, make_leader

# One cluster serves all tests of a replica: what befalls a stream's files has a stream of its own.
pytestmark = [pytest.mark.slow, one_process("damaged replica")]


class Hand(NamedTuple):
    """A store, and a client that writes into its stream without the store's write side."""

    store: JetStreamStore
    client: CollectingClient
    names: Names

    def reader(self, patience: float = 10.0) -> SessionReader:
        return SessionReader(RetryingReads(self.client, self.names, patience))

    async def append(self, session: str, *texts: str) -> int:
        done = await self.store.append(session, [make_draft(*texts)], ANY)
        return done.records[0].global_position // 1024

    def messages(self, position: int, digest: bytes, draft: Draft) -> Sequence[Outgoing]:
        """A unit of "s" and its bodies: a record at ``position``, after ``digest``."""
        unit = UnitAppend("s", position, [draft], chain("s", digest, position, [draft]))
        return pack(self.names, unit, 2**20).messages

    async def put(self, messages: Sequence[Outgoing]) -> None:
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


async def pages(scan: Any) -> list[Record]:
    found: list[Record] = []
    while page := await scan.page():
        found += page
    return found


async def read_all(reader: SessionReader) -> list[Record]:
    return await pages(await GlobalScan(reader, None).scan())


async def read(reader: SessionReader, **ranged: Any) -> list[Record]:
    return await pages(await reader.scan("s", **ranged))


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
async def test_an_append_of_which_a_leader_has_a_part_is_waited_for_and_no_damage(
    hand: Hand, of_one: bool
) -> None:
    def asked(reader: SessionReader) -> Any:
        return reader.records("s", 0, 1) if of_one else read_all(reader)

    done = await hand.store.append("s", [make_draft("first")], ANY)
    unit, *bodies = hand.messages(1, done.receipt.digest, make_draft("second", "third"))
    await hand.put([unit])
    with pytest.raises(StoreUnavailable, match="missing; its leader"):
        await asked(hand.reader(0.5))
    reader = hand.reader(60.0)
    reading = asyncio.create_task(asked(reader))
    async with asyncio.timeout(60):
        while reader.short_reads < 9:  # the replicas were asked, and the leader
            ended, _ = await asyncio.wait({reading}, timeout=0.01)
            assert not ended
    await hand.put(bodies)
    found = [[body.data for body in one.bodies] for one in await reading]
    assert found == [[b"first"], [b"second", b"third"]]


RECORDS = 300
VICTIM = 2
"""The server that lost a part; the tests are connected to the first one."""


def _overwrite(block: Path, at: int, data: bytes) -> None:
    whole = block.read_bytes()
    block.write_bytes(whole[:at] + data + whole[at + len(data) :])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda block: os.truncate(block, block.stat().st_size // 2),
    "deleted": Path.unlink,
    "flipped": lambda block: _overwrite(block, block.stat().st_size // 3, b"\xff\x00\xff"),
    "altered": lambda block: _overwrite(block, block.read_bytes().index(b"load of 25"), b"L"),
}


class Damaged(NamedTuple):
    """A store of which one server lost a part."""

    cluster: Cluster
    client: CollectingClient
    names: Names

    @property
    def node(self) -> Node:
        return self.cluster.nodes[VICTIM]

    def reader(self) -> SessionReader:
        return SessionReader(RetryingReads(self.client, self.names, 60.0))

    async def lead(self, number: int = VICTIM) -> None:
        await make_leader(self.client, self.cluster, self.names.stream(0), number)

    async def whole(self) -> None:
        """Wait until the damaged server has what the leader has."""
        async with asyncio.timeout(60):
            while self.last(VICTIM) != self.last(  # noqa: ASYNC110
                await asyncio.to_thread(self.cluster.leader, self.names.stream(0))
            ):
                await asyncio.sleep(0.05)

    def last(self, node: int) -> int:
        found = self.cluster.details(self.cluster.nodes[node], self.names.stream(0))
        return int(found.get("state", {}).get("last_seq", -node))


@pytest.fixture(scope="module")
def cluster(nats_binary: Path) -> Iterator[Cluster]:
    """Servers of which one lost a part of each stream while it was down."""
    with running(binary=nats_binary, place=memory_folder()) as own:
        asyncio.run(_fill(own))
        own.stop(VICTIM)
        for name, damage in DAMAGES.items():
            damage(own.nodes[VICTIM].blocks(Names(name, 1).stream(0))[-1])
        own.start(VICTIM)
        yield own


async def _fill(cluster: Cluster) -> None:
    async with connected(cluster.servers[0]) as client:
        for name in DAMAGES:
            stored = Damaged(cluster, client, Names(name, 1))
            store = await JetStreamStore.open(cluster.url(name))
            if name == "altered":
                for number in range(50):
                    draft = make_draft(payload=b"the payload of %02d" % number)
                    await store.append(f"s{number}", [draft], NO_STREAM)
            else:
                for number in range(RECORDS // 3):
                    drafts = [make_draft(f"{number}-{n}", "x" * 2000) for n in range(3)]
                    await store.append("s", drafts, ANY)
            await store.close()
            if await asyncio.to_thread(cluster.leader, stored.names.stream(0)) == VICTIM:
                await stored.lead(0)
            await stored.whole()


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[CollectingClient]:
    async with connected(cluster.servers[0]) as one:
        yield one


@pytest.fixture(params=["truncated", "deleted", "flipped"])
def damaged(request: pytest.FixtureRequest, cluster: Cluster, client: CollectingClient) -> Damaged:
    return Damaged(cluster, client, Names(request.param, 1))


async def test_while_it_follows_every_read_is_whole(damaged: Damaged) -> None:
    if await asyncio.to_thread(damaged.cluster.leader, damaged.names.stream(0)) == VICTIM:
        await damaged.lead(0)
    short = 0
    async with connected(damaged.cluster.servers[VICTIM]) as near, asyncio.timeout(60):
        while short < 3:  # it answers some seconds after its start, and is not believed
            reader = SessionReader(RetryingReads(near, damaged.names, 60.0))
            records = await read(reader)
            assert len(records) == RECORDS
            check_chain(records)
            assert len(await read(reader, backward=True, bodies=False)) == RECORDS
            assert len(await read_all(reader)) == RECORDS
            assert [info.head for info in await Registry(reader).page(None)] == [RECORDS - 1]
            short += reader.short_reads
            await asyncio.sleep(0.1)


async def test_when_it_leads_a_read_is_whole_or_an_error(damaged: Damaged) -> None:
    knowing = damaged.reader()
    await read(knowing)
    await damaged.lead()
    refused = 0
    for number in range(4):
        reader = knowing if number % 2 else damaged.reader()
        for _ in range(2):
            try:
                assert len(await read(reader)) == RECORDS
                assert [i.head for i in await Registry(reader).page(None)] == [RECORDS - 1]
            except LogCorrupted as damage:
                refused += 1
                assert f"{damaged.node.name!r} lacks" in str(damage)
    state = damaged.cluster.details(damaged.node, damaged.names.stream(0))["state"]
    if state["messages"] < state["last_seq"]:  # a flipped bit is counted as a message
        assert refused == 8
        assert "lacks" in (await inspect(reader)).findings[0]


async def test_a_session_whose_last_message_the_leader_cannot_read_is_not_taken_for_none(
    cluster: Cluster, client: CollectingClient
) -> None:
    damaged = Damaged(cluster, client, Names("altered", 1))
    await damaged.lead()
    for _ in range(3):
        with pytest.raises(LogCorrupted, match="cannot read"):
            await damaged.reader().head("s25")
    assert await damaged.reader().head("nobody") is None
