"""Appends of every size, by several processes, while servers are lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from eventctx.errors import WrongExpectedVersion
from eventctx.log.record import make_body
from eventctx.log.store import ANY, NO_STREAM
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract.drafts import check_chain, gather, make_draft
from tests.services import nats_server
from tests.services.in_memory import memory_folder
from tests.services.nats_server import Cluster
from tests.stores.jetstream.conftest import fresh_name

pytestmark = pytest.mark.asyncio


@pytest.fixture
async def store(jetstream: Cluster) -> AsyncIterator[JetStreamStore]:
    opened = await JetStreamStore.open(jetstream.url(fresh_name()))
    yield opened
    await opened.close()


async def test_a_body_larger_than_a_message_is_read_as_it_was_appended(
    store: JetStreamStore,
) -> None:
    drafts = [make_draft(os.urandom(2_500_000), "small", os.urandom(1_048_576)), make_draft("b")]
    done = await store.append("s", drafts, NO_STREAM)
    assert tuple(await gather(store.read("s"))) == done.records
    assert tuple(await gather(store.read_all())) == done.records


async def test_facts_larger_than_headers_may_be_are_kept(store: JetStreamStore) -> None:
    body = make_body(b"data", os.urandom(200_000), os.urandom)
    done = await store.append("s", [make_draft(bodies=(body,))], NO_STREAM)
    assert tuple(await gather(store.read("s"))) == done.records
    (lean,) = await gather(store.read("s", bodies=False))
    assert (lean.bodies[0].facts, lean.bodies[0].data) == (body.facts, None)


async def test_a_payload_larger_than_a_message_is_read_as_it_was_appended(
    store: JetStreamStore,
) -> None:
    drafts = [make_draft("a"), make_draft("b", payload=os.urandom(3_000_000)), make_draft("c")]
    done = await store.append("s", drafts, NO_STREAM)
    assert tuple(await gather(store.read("s"))) == done.records
    assert (await store.append("s", [make_draft("d")], 2)).receipt.position == 3
    check_chain(await gather(store.read("s")))


async def test_an_append_of_more_messages_than_a_batch_takes_is_one_step(
    store: JetStreamStore,
) -> None:
    drafts = [make_draft(f"text {number}") for number in range(2300)]
    done = await store.append("s", drafts, NO_STREAM)
    assert tuple(await gather(store.read("s"))) == done.records
    assert await store.append("s", drafts, NO_STREAM) == done


async def test_appends_that_nobody_awaits_are_stored_when_the_store_is_closed(
    jetstream: Cluster,
) -> None:
    url = jetstream.url(fresh_name())
    store = await JetStreamStore.open(url)
    for number in range(300):
        store.append(f"s{number % 7}", [make_draft(str(number))], ANY)
    await store.close()
    store = await JetStreamStore.open(url)
    found = [record.bodies[0].data async for record in store.read_all()]
    assert sorted(found, key=lambda data: int(data or b"")) == [
        str(number).encode() for number in range(300)
    ]
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


async def test_processes_that_compete_for_a_session_win_each_position_once(
    jetstream: Cluster,
) -> None:
    url = jetstream.url(fresh_name())
    program = Path(__file__).parents[1] / "programs" / "compete.py"
    root = Path(__file__).parents[3]
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            str(program),
            url,
            "25",
            env={**os.environ, "PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    won = []
    for child in children:
        out, _ = await child.communicate()
        assert child.returncode == 0
        won += [int(line) for line in out.split()]
    assert sorted(won) == list(range(75))
    store = await JetStreamStore.open(url)
    records = await gather(store.read("s"))
    check_chain(records)
    assert len(records) == 75
    await store.close()


@pytest.mark.slow
async def test_what_was_acknowledged_outlives_the_loss_of_servers(nats_binary: Path) -> None:
    faults = {
        "the leader killed": _kill_the_leader,
        "the leader halted": _halt_the_leader,
        "all killed": _kill_all,
    }

    async def lose(clusters: ExitStack, said: str) -> None:
        cluster = await asyncio.to_thread(
            clusters.enter_context,
            nats_server.running(binary=nats_binary, place=memory_folder()),
        )
        try:
            await _write_through(cluster, faults[said])
        except BaseException as error:
            error.add_note(said)
            raise

    # At once, since each waits most of its time for the others to elect a leader.
    with ExitStack() as clusters:
        async with asyncio.TaskGroup() as group:
            for said in faults:
                group.create_task(lose(clusters, said))


Done = Callable[[], Awaitable[None]]


async def _kill_the_leader(cluster: Cluster, wrote_on: Done) -> None:
    leader = await asyncio.to_thread(cluster.leader, "EVENTCTX_0")
    cluster.kill(leader)
    await wrote_on()
    newcomer = await JetStreamStore.open(cluster.url())  # while one is down
    done = await newcomer.append("late", [make_draft("a")], NO_STREAM)
    assert await gather(newcomer.read("late")) == list(done.records)
    await newcomer.close()
    await asyncio.to_thread(cluster.start, leader)


async def _halt_the_leader(cluster: Cluster, wrote_on: Done) -> None:
    leader = await asyncio.to_thread(cluster.leader, "EVENTCTX_0")
    cluster.pause(leader)
    await wrote_on()
    cluster.resume(leader)


async def _kill_all(cluster: Cluster, wrote_on: Done) -> None:
    cluster.kill()
    await asyncio.to_thread(cluster.start)
    await wrote_on()


async def _write_through(
    cluster: Cluster, lose: Callable[[Cluster, Done], Awaitable[None]]
) -> None:
    """Write by many tasks of two stores while servers are lost; what was acknowledged is there."""
    stores = [await JetStreamStore.open(cluster.url()) for _ in range(2)]
    acknowledged: dict[str, dict[int, bytes]] = defaultdict(dict)
    stopping, went_on = asyncio.Event(), asyncio.Event()
    wanted = 300

    def acknowledge(name: str, position: int, event: bytes) -> None:
        assert position not in acknowledged[name]
        acknowledged[name][position] = event
        if sum(map(len, acknowledged.values())) >= wanted:
            went_on.set()

    async def alone(number: int) -> None:
        last = -1
        while not stopping.is_set():
            draft = make_draft("x" * 200)
            done = await stores[0].append(f"s{number}", [draft], last)
            last = done.receipt.position
            acknowledge(f"s{number}", last, draft.id)

    async def together(store: JetStreamStore, checked: bool) -> None:
        name = "checked" if checked else "any"
        while not stopping.is_set():
            info = await store.head(name)
            expected = -1 if info is None else info.head
            draft = make_draft("y")
            try:
                done = await store.append(name, [draft], expected if checked else ANY)
            except WrongExpectedVersion:
                continue
            acknowledge(name, done.receipt.position, draft.id)

    async def wrote_on() -> None:
        nonlocal wanted
        wanted = sum(map(len, acknowledged.values())) + 300
        went_on.clear()
        await asyncio.wait_for(went_on.wait(), 120)

    writing = [asyncio.create_task(alone(number)) for number in range(10)] + [
        asyncio.create_task(together(store, checked))
        for store in stores
        for checked in (False, True)
    ]
    await asyncio.wait_for(went_on.wait(), 60)
    await lose(cluster, wrote_on)
    stopping.set()
    await asyncio.wait_for(asyncio.gather(*writing), 60)
    for name, found in acknowledged.items():
        records = await gather(stores[1].read(name))
        check_chain(records)
        ids = {record.position: record.id for record in records}
        assert len(set(ids.values())) == len(records)
        assert found.items() <= ids.items()
    for store in stores:
        await store.close()
