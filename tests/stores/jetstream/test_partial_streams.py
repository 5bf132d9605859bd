"""Reads of all sessions of a JetStream store, and its list of sessions."""

from __future__ import annotations

import asyncio

import pytest
from tests.stores.jetstream.bare import Bare

from eventctx.errors import LogCorrupted, StoreUnavailable, StreamNotFound
from eventctx.log.record import Record
from eventctx.stores.jetstream.global_scan import GlobalScan
from eventctx.stores.jetstream.layout import ErasedBody, WireMessage
from eventctx.stores.jetstream.reading import SessionReader
from eventctx.stores.jetstream.registry import Registry, inspect
from eventctx.stores.jetstream.retrying_reads import RetryingReads
from eventctx.testing.store_contract.drafts import make_draft

pytestmark = pytest.mark.slow


async def read_all(
    log: GlobalScan, after: int = -1, limit: int | None = None, bodies: bool = True
) -> list[Record]:
    scan = await log.scan(after=after, limit=limit, bodies=bodies)
    found: list[Record] = []
    while page := await scan.page():
        found += page
    return found


async def test_all_sessions_are_read_in_the_order_in_which_they_were_stored(
    bare: Bare, reader: SessionReader
) -> None:
    log = GlobalScan(reader, None)
    assert await read_all(log) == []
    await bare.append("a", [make_draft("0", "1"), make_draft()])
    await bare.append("b", [make_draft("2")])
    await bare.append("a", [make_draft(b"x" * 2_000_000, payload=b"y" * 1_500_000)])
    for number in range(400):
        await bare.append(f"s{number}", [make_draft(str(number))])
    found = await read_all(log)
    assert [(r.stream, r.position) for r in found[:4]] == [("a", 0), ("a", 1), ("b", 0), ("a", 2)]
    assert [r.stream for r in found[4:]] == [f"s{number}" for number in range(400)]
    places = [r.global_position for r in found]
    assert places == sorted(set(places))
    for at in (0, 1, 2, 3, 4, 200):
        assert await read_all(log, after=places[at]) == found[at + 1 :]
        assert await read_all(log, after=places[at], limit=2) == found[at + 1 : at + 3]
    await bare.erase("b", [ErasedBody(0, 0, b"less")])
    (second,) = await read_all(log, after=places[1], limit=1, bodies=False)
    assert (second.bodies[0].erased, second.bodies[0].facts) == (True, b"less")


async def test_a_message_that_is_gone_and_was_not_deleted_is_an_error(
    bare: Bare, reader: SessionReader
) -> None:
    log = GlobalScan(reader, None)
    for number in range(10):
        await bare.append(f"s{number}", [make_draft(str(number))])
    before = await read_all(log)
    lost = before[6].global_position // 1024
    await bare.remove(0, lost)
    with pytest.raises(LogCorrupted, match="lacks 1"):
        await read_all(log)
    await bare.allow(0, 1)
    left = await read_all(log)
    assert [r.stream for r in left] == [f"s{n}" for n in range(10) if n != 6]
    found = await inspect(reader)
    assert found.findings == ("'s6' is in the registry, and has no record",)


@pytest.mark.parametrize("of_one", [False, True], ids=["all sessions", "one session"])
async def test_an_append_that_a_leader_has_in_part_is_waited_for(
    bare: Bare, reader: SessionReader, of_one: bool
) -> None:
    await bare.append("s", [make_draft("first")])
    contents: list[WireMessage] = []
    await bare.append("s", [make_draft("second", "third")], later=contents)
    assert len(contents) == 2

    reading = asyncio.create_task(
        reader.records("s", 0, 1) if of_one else read_all(GlobalScan(reader, None))
    )
    async with asyncio.timeout(60):
        while reader.short_reads < 9:  # the replicas were asked, and the leader
            ended, _ = await asyncio.wait({reading}, timeout=0.01)
            assert not ended
    for message in contents:
        await bare.put(bare.names.of_session("b", "s"), message)
    records = await reading
    assert [[body.data for body in one.bodies] for one in records] == [
        [b"first"],
        [b"second", b"third"],
    ]


@pytest.mark.parametrize("of_one", [False, True], ids=["all sessions", "one session"])
async def test_an_append_whose_end_never_comes_is_a_doubt_and_no_damage(
    bare: Bare, of_one: bool
) -> None:
    reader = SessionReader(RetryingReads(bare.client, bare.names, 2.0))
    await bare.append("s", [make_draft("first")])
    await bare.append("s", [make_draft("second")], later=[])
    with pytest.raises(StoreUnavailable, match="missing; its leader"):
        await (reader.records("s", 0, 1) if of_one else read_all(GlobalScan(reader, None)))


async def test_an_append_larger_than_what_a_replica_or_leader_sends_at_once_is_read(
    bare: Bare, reader: SessionReader
) -> None:
    await bare.append("s", [make_draft(*(f"{number} " + "x" * 20_000 for number in range(300)))])
    (record,) = await read_all(GlobalScan(reader, None))
    assert len(record.bodies) == 300
    assert reader.short_reads == 0


async def test_sessions_are_listed_in_order_of_creation_from_any_one_on(
    bare: Bare, reader: SessionReader
) -> None:
    names = [f"name {number:03}" for number in range(450)][::-1]
    for name in names:
        await bare.append(name, [make_draft()])
    await bare.append(names[3], [make_draft()])

    async def page(registry: Registry, after: str | None, limit: int | None) -> list[str]:
        return [info.stream for info in await registry.page(after, limit)]

    listed: list[str] = []
    registry = Registry(reader)
    while more := await page(registry, listed[-1] if listed else None, None):
        listed += more
    assert listed == names
    for kept in (registry, Registry(reader)):
        assert await page(kept, names[317], 5) == names[318:323]
        assert await page(kept, names[-1], 5) == []
        assert await page(kept, None, 1) == names[:1]
    with pytest.raises(StreamNotFound):
        await registry.page("nobody")
    (fourth,) = await registry.page(names[2], 1)
    assert fourth.head == 1
    assert (await inspect(reader)).findings == ()
