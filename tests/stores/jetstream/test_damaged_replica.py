"""A replica that lost a part of its files while it was down: no read passes on less than there is.

nats-server 2.15.1 starts with what is left, is not repaired by the others, and says nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from eventctx.errors import LogCorrupted
from eventctx.log.record import Record
from eventctx.log.store import ANY, NO_STREAM
from eventctx.stores.jetstream.global_scan import GlobalScan
from eventctx.stores.jetstream.layout import Names
from eventctx.stores.jetstream.reading import SessionReader
from eventctx.stores.jetstream.registry import Registry, inspect
from eventctx.stores.jetstream.retrying_reads import CollectingClient, RetryingReads
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract.drafts import check_chain, make_draft
from tests.services.in_memory import memory_folder
from tests.services.nats_server import Cluster, Node, running
from tests.stores.jetstream.conftest import connected, make_leader

# One cluster serves all these tests: whatever can befall a stream's files has a stream of its own.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("damaged replica")]

RECORDS = 300
VICTIM = 2
"""The server that lost a part; the tests are connected to the first one."""


def _truncate(block: Path) -> None:
    with block.open("r+b") as opened:
        opened.truncate(block.stat().st_size // 2)


def _flip(block: Path) -> None:
    with block.open("r+b") as opened:
        opened.seek(block.stat().st_size // 3)
        opened.write(b"\xff\x00\xff")


def _alter(block: Path) -> None:
    with block.open("r+b") as opened:
        opened.seek(block.read_bytes().index(b"the payload of 25"))
        opened.write(b"THE")


DAMAGES = {"truncated": _truncate, "deleted": Path.unlink, "flipped": _flip}


class Damaged(NamedTuple):
    """A store of which one server lost a part."""

    cluster: Cluster
    client: CollectingClient
    names: Names

    @property
    def node(self) -> Node:
        """The server that lost a part."""
        return self.cluster.nodes[VICTIM]

    def reader(self) -> SessionReader:
        """A reader that has seen nothing yet."""
        return SessionReader(RetryingReads(self.client, self.names, 60.0))

    async def lead(self, number: int = VICTIM) -> None:
        """Make a server the leader, the damaged one by default."""
        await make_leader(self.client, self.cluster, self.names.stream(0), number)

    async def whole(self) -> None:
        """Wait until the damaged server has what the leader has."""
        async with asyncio.timeout(60):
            while True:
                stream = self.names.stream(0)
                leader = await asyncio.to_thread(self.cluster.leader, stream)
                if _last(self.cluster, VICTIM, stream) == _last(self.cluster, leader, stream):
                    return
                await asyncio.sleep(0.05)


def _last(cluster: Cluster, node: int, stream: str) -> int:
    """The sequence of the last message that a server has of a stream."""
    state = cluster.details(cluster.nodes[node], stream).get("state", {})
    return int(state.get("last_seq", -node))


@pytest.fixture(scope="module")
def cluster(nats_binary: Path) -> Iterator[Cluster]:
    """Servers of which one lost a part of each stream while it was down."""
    with running(binary=nats_binary, place=memory_folder()) as own:
        asyncio.run(_fill(own))
        own.stop(VICTIM)
        for name, damage in {**DAMAGES, "altered": _alter}.items():
            damage(own.nodes[VICTIM].blocks(Names(name, 1).stream(0))[-1])
        own.start(VICTIM)
        yield own


async def _fill(cluster: Cluster) -> None:
    async with connected(cluster.servers[0]) as client:
        for name in (*DAMAGES, "altered"):
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


@pytest.fixture(params=DAMAGES)
def damaged(request: pytest.FixtureRequest, cluster: Cluster, client: CollectingClient) -> Damaged:
    return Damaged(cluster, client, Names(request.param, 1))


async def _read(reader: SessionReader, **ranged: bool) -> list[Record]:
    scan = await reader.scan("s", **ranged)
    found: list[Record] = []
    while page := await scan.page():
        found += page
    return found


async def test_while_it_follows_every_read_is_whole(damaged: Damaged) -> None:
    if await asyncio.to_thread(damaged.cluster.leader, damaged.names.stream(0)) == VICTIM:
        await damaged.lead(0)
    short = 0
    async with connected(damaged.cluster.servers[VICTIM]) as near, asyncio.timeout(60):
        while short < 3:  # it answers some seconds after its start, and is not believed
            reader = SessionReader(RetryingReads(near, damaged.names, 60.0))
            records = await _read(reader)
            assert len(records) == RECORDS
            check_chain(records)
            assert len(await _read(reader, backward=True, bodies=False)) == RECORDS
            scan = await GlobalScan(reader, None).scan()
            found = 0
            while page := await scan.page():
                found += len(page)
            assert found == RECORDS
            assert [info.head for info in await Registry(reader).page(None)] == [RECORDS - 1]
            short += reader.short_reads
            await asyncio.sleep(0.1)


async def test_when_it_leads_a_read_is_whole_or_an_error(damaged: Damaged) -> None:
    knowing = damaged.reader()
    await _read(knowing)
    await damaged.lead()
    refused = 0
    for number in range(4):
        reader = knowing if number % 2 else damaged.reader()
        for _ in range(2):
            try:
                assert len(await _read(reader)) == RECORDS
                assert [i.head for i in await Registry(reader).page(None)] == [RECORDS - 1]
            except LogCorrupted as damage:
                refused += 1
                assert f"{damaged.node.name!r} lacks" in str(damage)
    state = damaged.cluster.details(damaged.node, damaged.names.stream(0))["state"]
    if state["messages"] < state["last_seq"]:  # a flipped bit is counted as a message
        assert refused == 8
        (finding, *_) = (await inspect(reader)).findings
        assert "lacks" in finding


async def test_a_session_whose_last_message_the_leader_cannot_read_is_not_taken_for_none(
    cluster: Cluster, client: CollectingClient
) -> None:
    damaged = Damaged(cluster, client, Names("altered", 1))
    await damaged.lead()
    for _ in range(3):
        with pytest.raises(LogCorrupted, match="cannot read"):
            await damaged.reader().head("s25")
    assert await damaged.reader().head("nobody") is None
