"""A replica that lost a part of its files while it was down: no read passes on less than there is.

nats-server 2.15.1 starts with what is left, is not repaired by the others, and says nothing.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from nats.errors import Error as NatsError

from eventctx.errors import LogCorrupted
from eventctx.log.record import Record
from eventctx.stores.jetstream.reads.asking import Asking
from eventctx.stores.jetstream.reads.inspection import inspect
from eventctx.stores.jetstream.reads.reading import SessionReader
from eventctx.stores.jetstream.reads.registry import Registry
from eventctx.stores.jetstream.reads.whole import Whole
from eventctx.stores.jetstream.wire.collecting import CollectingClient
from eventctx.stores.jetstream.wire.layout import Names
from eventctx.testing.store_contract.drafts import check_chain, make_draft
from tests.services.nats_server import Cluster, find, running
from tests.stores.jetstream.bare import Bare

pytestmark = pytest.mark.slow

RECORDS = 300


class Damaged(NamedTuple):
    """A store of which one server lost a part, and that server's number."""

    cluster: Cluster
    client: CollectingClient
    names: Names
    victim: int

    def reader(self) -> SessionReader:
        """A reader that has seen nothing yet."""
        return SessionReader(Asking(self.client, self.names, 20.0))

    def copy_anew(self) -> None:
        """Do what the error says: stop it, remove its store_dir, and start it."""
        stream = self.names.stream(0)
        node = self.cluster.nodes[self.victim]
        self.cluster.stop(self.victim)
        shutil.rmtree(node.data)
        self.cluster.start(self.victim)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            states = [self.cluster.details(one, stream).get("state") for one in self.cluster.nodes]
            if len({json.dumps(one) for one in states}) == 1:
                return
            time.sleep(0.1)
        raise AssertionError(states)

    async def lead(self) -> None:
        """Make the damaged server the leader."""
        name = self.cluster.nodes[self.victim].name
        stream = self.names.stream(0)
        request = b'{"placement": {"preferred": "%s"}}' % name.encode()
        async with asyncio.timeout(30):
            while True:
                with suppress(NatsError):  # there may be no leader just now
                    await self.client.request(
                        f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", request, timeout=2
                    )
                if await asyncio.to_thread(self.cluster.leader, stream) == self.victim:
                    return
                await asyncio.sleep(0.2)


def _truncate(block: Path) -> None:
    with block.open("r+b") as opened:
        opened.truncate(block.stat().st_size // 2)


def _flip(block: Path) -> None:
    with block.open("r+b") as opened:
        opened.seek(block.stat().st_size // 3)
        opened.write(b"\xff\x00\xff")


@pytest.fixture(params=[_truncate, Path.unlink, _flip], ids=["truncated", "deleted", "flipped"])
async def damaged(request: pytest.FixtureRequest, jetstream: Cluster) -> AsyncIterator[Damaged]:
    with running(binary=find()) as cluster:
        client = CollectingClient()
        await client.connect(cluster.servers[0])
        names = Names("DAMAGED", 1)
        bare = Bare(client, names)
        await bare.create()
        for number in range(RECORDS // 3):
            await bare.append("s", [make_draft(f"{number}-{n}", "x" * 2000) for n in range(3)])
        victim = await _victim(cluster, names)
        cluster.stop(victim)
        blocks = cluster.nodes[victim].blocks(names.stream(0))
        request.param(blocks[-1])
        cluster.start(victim)
        yield Damaged(cluster, client, names, victim)
        await client.close()


async def _victim(cluster: Cluster, names: Names) -> int:
    """A server that follows with all that was stored, and to which the test is not connected."""
    stream = names.stream(0)
    leader = await asyncio.to_thread(cluster.leader, stream)
    victim = 2 if leader == 1 else 1
    async with asyncio.timeout(30):
        while _last(cluster, victim, stream) != _last(cluster, leader, stream):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return victim


def _last(cluster: Cluster, node: int, stream: str) -> int:
    """The sequence of the last message that a server has of a stream."""
    state = cluster.details(cluster.nodes[node], stream).get("state", {})
    return int(state.get("last_seq", -node))


async def _read(reader: SessionReader, **ranged: bool) -> list[Record]:
    scan = await reader.scan("s", **ranged)
    found: list[Record] = []
    while page := await scan.page():
        found += page
    return found


async def test_while_it_follows_every_read_is_whole(damaged: Damaged) -> None:
    near = CollectingClient()
    await near.connect(damaged.cluster.servers[damaged.victim])
    short, until = 0, time.monotonic() + 40
    while short < 3 and time.monotonic() < until:  # it answers some seconds after its start
        reader = SessionReader(Asking(near, damaged.names, 20.0))
        records = await _read(reader)
        assert len(records) == RECORDS
        check_chain(records)
        assert len(await _read(reader, backward=True, bodies=False)) == RECORDS
        scan = await Whole(reader, None).scan()
        found = 0
        while page := await scan.page():
            found += len(page)
        assert found == RECORDS
        assert [info.head for info in await Registry(reader).page(None)] == [RECORDS - 1]
        short += reader.short_reads
    await near.close()
    assert short > 0  # the damaged server was asked, and its answers were not believed


async def test_when_it_leads_a_read_is_whole_or_an_error(damaged: Damaged) -> None:
    knowing = damaged.reader()
    await _read(knowing)
    await damaged.lead()
    refused = 0
    for number in range(12):
        reader = knowing if number % 2 else damaged.reader()
        for _ in range(3):
            try:
                assert len(await _read(reader)) == RECORDS
                assert [i.head for i in await Registry(reader).page(None)] == [RECORDS - 1]
            except LogCorrupted as damage:
                refused += 1
                assert f"{damaged.cluster.nodes[damaged.victim].name!r} lacks" in str(damage)
    state = damaged.cluster.details(damaged.cluster.nodes[damaged.victim], damaged.names.stream(0))[
        "state"
    ]
    if state["messages"] < state["last_seq"]:  # a flipped bit is counted as a message
        assert refused == 36
        (finding, *_) = (await inspect(reader)).findings
        assert "lacks" in finding
    await asyncio.to_thread(damaged.copy_anew)
    records = await _read(reader)
    assert len(records) == RECORDS
    assert (await inspect(reader)).findings == ()


async def test_it_copies_the_others_when_its_folder_is_removed(
    damaged: Damaged,
) -> None:
    await asyncio.to_thread(damaged.copy_anew)
    await damaged.lead()
    for _ in range(5):
        check_chain(await _read(damaged.reader()))


async def test_a_session_whose_last_message_the_leader_cannot_read_is_not_taken_for_none(
    jetstream: Cluster,
) -> None:
    with running(binary=find()) as cluster:
        client = CollectingClient()
        await client.connect(cluster.servers[0])
        names = Names("DAMAGED", 1)
        bare = Bare(client, names)
        await bare.create()
        for number in range(50):
            await bare.append(f"s{number}", [make_draft(payload=b"the payload of %02d" % number)])
        victim = await _victim(cluster, names)
        cluster.stop(victim)
        block = cluster.nodes[victim].blocks(names.stream(0))[-1]
        with block.open("r+b") as opened:
            opened.seek(block.read_bytes().index(b"the payload of 25"))
            opened.write(b"THE")
        cluster.start(victim)
        damaged = Damaged(cluster, client, names, victim)
        await damaged.lead()
        for _ in range(3):
            with pytest.raises(LogCorrupted, match="cannot read"):
                await damaged.reader().head("s25")
        assert await damaged.reader().head("nobody") is None
        await client.close()
