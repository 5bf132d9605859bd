"""What was erased or deleted is in no file of any server: messages, Raft logs, snapshots."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from eventctx.errors import WrongExpectedVersion
from eventctx.log.store import NO_STREAM, Address, Snapshot
from eventctx.stores.jetstream import destroying
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract.drafts import gather, make_draft
from tests.services import nats_server
from tests.services.nats_server import Cluster

pytestmark = pytest.mark.asyncio

NEEDLE = "a text that must go"
KEPT = "a text that must stay"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with nats_server.running() as own:
        yield own


@pytest.fixture
async def store(cluster: Cluster) -> AsyncIterator[JetStreamStore]:
    opened = await JetStreamStore.open(cluster.url())
    yield opened
    await opened.close()


def holding(cluster: Cluster, text: str) -> list[Path]:
    """The servers' files in which a text is found."""
    found = subprocess.run(["grep", "-rlF", text, cluster.folder], capture_output=True, text=True)
    return [Path(name) for name in found.stdout.splitlines()]


async def test_what_was_erased_is_in_no_file_of_any_server(
    cluster: Cluster, store: JetStreamStore
) -> None:
    large = ("x" * 1000 + NEEDLE) * 2500
    done = await store.append("s", [make_draft(NEEDLE, KEPT), make_draft(large)], NO_STREAM)
    for state in (b"one", b"two"):
        store.save_snapshot(
            "s", "view", Snapshot(1, done.receipt.digest, 1, state + NEEDLE.encode())
        )
        await store.load_snapshot("s", "view")
    # Each replica has it in its messages and in its Raft log.
    assert len(holding(cluster, NEEDLE)) >= 6
    erased = await store.erase(
        {"s": {Address(0): b"f", Address(1): b"f"}}, {"s": make_draft("note")}
    )
    assert erased.bodies == 2
    assert await store.scrubbed()
    assert holding(cluster, NEEDLE) == []
    assert (
        len({path.parts[: len(cluster.folder.parts) + 1] for path in holding(cluster, KEPT)}) == 3
    )
    first, second, _ = await gather(store.read("s"))
    assert [body.erased for body in first.bodies + second.bodies] == [True, False, True]
    assert (await store.inspect()).findings == ()


async def test_what_was_deleted_is_in_no_file_of_any_server(
    cluster: Cluster, store: JetStreamStore
) -> None:
    drafts = [make_draft(NEEDLE, payload=b'{"of":"the payload, too"}') for _ in range(20)]
    await store.append("s", drafts, NO_STREAM)
    await store.append("other", [make_draft(KEPT)], NO_STREAM)
    await store.delete("s", make_draft(), 19)
    assert await store.scrubbed()
    assert holding(cluster, NEEDLE) + holding(cluster, "the payload, too") == []
    assert holding(cluster, KEPT)
    inspection = await store.inspect()
    assert (inspection.findings, inspection.missing) == ((), 20)


async def test_while_a_server_is_down_nothing_counts_as_scrubbed_and_later_it_is(
    cluster: Cluster, store: JetStreamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destroying, "AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(destroying, "WAIT_SECONDS", 2.0)
    await store.append("s", [make_draft(NEEDLE)], NO_STREAM)
    away = (cluster.leader("EVENTCTX_0") + 1) % 3
    cluster.kill(away)
    assert (await store.erase({"s": {Address(0): b""}})).bodies == 1
    assert (await anext(store.read("s"))).bodies[0].erased
    assert not await store.scrubbed()
    assert holding(cluster, NEEDLE)
    cluster.start(away)
    for _ in range(600):
        if await store.scrubbed():
            break
        await asyncio.sleep(0.1)
    assert await store.scrubbed()
    assert holding(cluster, NEEDLE) == []


async def test_what_an_erasure_could_not_finish_the_next_opener_does(cluster: Cluster) -> None:
    first = await JetStreamStore.open(cluster.url())
    await first.append("s", [make_draft(NEEDLE)], NO_STREAM)

    async def cut_off(_shard: int) -> bool:
        return False

    first._parts.destroyer.carry_out = cut_off  # type: ignore[method-assign]  # as if it died here
    await first.erase({"s": {Address(0): b""}})
    assert not await first.scrubbed()
    await first.close()
    assert holding(cluster, NEEDLE)
    second = await JetStreamStore.open(cluster.url())
    for _ in range(300):
        if await second.scrubbed():
            break
        await asyncio.sleep(0.1)
    assert holding(cluster, NEEDLE) == []
    await second.close()


async def test_a_long_append_that_is_refused_leaves_nothing(
    cluster: Cluster, store: JetStreamStore
) -> None:
    await store.append("s", [make_draft("a")], NO_STREAM)
    drafts = [make_draft(NEEDLE) for _ in range(1200)]
    ack = store.append("s", drafts, 0)
    other = await JetStreamStore.open(cluster.url())
    # Either of the two is first; the other one is refused.
    outcomes = []
    for attempt in (other.append("s", [make_draft("b")], 0), ack):
        try:
            outcomes.append((await attempt).receipt.position)
        except WrongExpectedVersion:
            outcomes.append(-1)
    assert min(outcomes) == -1
    await other.close()
    if outcomes[1] == -1:
        for _ in range(900):
            if await store.scrubbed() and not holding(cluster, NEEDLE):
                break
            await asyncio.sleep(0.1)
        assert holding(cluster, NEEDLE) == []
    assert (await store.inspect()).findings == ()
