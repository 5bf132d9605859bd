"""What was erased or deleted is in no file of any server: messages, Raft logs, snapshots."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventctx.errors import WrongExpectedVersion
from eventctx.log.store import NO_STREAM, Address, Snapshot
from eventctx.stores.jetstream import destroying
from eventctx.stores.jetstream.store import JetStreamStore
from eventctx.testing.store_contract.drafts import gather, make_draft
from tests.services import nats_server
from tests.services.in_memory import memory_folder
from tests.services.nats_server import Cluster
from tests.stores.jetstream.conftest import fresh_name


@pytest.fixture(scope="module")
def cluster(nats_binary: Path) -> Iterator[Cluster]:
    """Servers whose files these tests may search, each for words of its own."""
    with nats_server.running(binary=nats_binary, place=memory_folder()) as own:
        yield own


@pytest.fixture
def name() -> str:
    return fresh_name()


@pytest.fixture
def needle(name: str) -> str:
    return f"a text of {name} that must go"


@pytest.fixture
def kept(name: str) -> str:
    return f"a text of {name} that must stay"


@pytest.fixture
async def store(cluster: Cluster, name: str, opened: Any) -> JetStreamStore:
    return await opened(JetStreamStore.open(cluster.url(name)))


async def scrubbed(store: JetStreamStore) -> None:
    async with asyncio.timeout(90):
        while not await store.scrubbed():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def holding(cluster: Cluster, text: str) -> list[Path]:
    found = subprocess.run(["grep", "-rlF", text, cluster.folder], capture_output=True, text=True)
    return [Path(name) for name in found.stdout.splitlines()]


async def test_what_was_erased_or_deleted_is_in_no_file_of_any_server(
    cluster: Cluster, store: JetStreamStore, needle: str, kept: str
) -> None:
    payload = b'{"of":"%s, too"}' % needle.encode()
    drafts = [make_draft("x", payload=payload), *(make_draft(needle) for _ in range(19))]
    await store.append("gone", drafts, NO_STREAM)
    large = ("x" * 1000 + needle) * 2500
    done = await store.append("s", [make_draft(needle, kept), make_draft(large)], NO_STREAM)
    for state in (b"one", b"two"):
        snapshot = Snapshot(1, done.receipt.digest, 1, state + needle.encode())
        store.save_snapshot("s", "view", snapshot)
        await store.load_snapshot("s", "view")
    # Each replica has it in its messages and in its Raft log.
    assert len(holding(cluster, needle)) >= 6
    facts = {Address(0): b"f", Address(1): b"f"}
    assert (await store.erase({"s": facts}, {"s": make_draft("note")})).bodies == 2
    assert await store.scrubbed()
    assert holding(cluster, needle)
    await store.delete("gone", make_draft(), 19)
    assert await store.scrubbed()
    assert holding(cluster, needle) == []
    assert len({path.relative_to(cluster.folder).parts[0] for path in holding(cluster, kept)}) == 3
    first, second, _ = await gather(store.read("s"))
    assert [body.erased for body in first.bodies + second.bodies] == [True, False, True]
    inspection = await store.inspect()
    assert (inspection.findings, inspection.missing) == ((), 20)


async def test_while_a_server_is_down_nothing_counts_as_scrubbed_and_later_it_is(
    cluster: Cluster, store: JetStreamStore, name: str, needle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destroying, "AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(destroying, "WAIT_SECONDS", 0.5)
    await store.append("s", [make_draft(needle)], NO_STREAM)
    # One that leads nothing, so that nobody has to be elected.
    leading = (cluster.leader(), *(cluster.leader(f"{name}_{part}") for part in ("0", "META")))
    away = next((one for one in range(3) if one not in leading), leading[0])
    cluster.kill(away)
    assert (await store.erase({"s": {Address(0): b""}})).bodies == 1
    assert (await anext(store.read("s"))).bodies[0].erased
    assert not await store.scrubbed()
    assert holding(cluster, needle)
    cluster.start(away)
    await scrubbed(store)
    assert holding(cluster, needle) == []


async def test_the_next_opener_finishes_an_erasure(
    cluster: Cluster, name: str, needle: str, opened
) -> None:
    first = await JetStreamStore.open(cluster.url(name))
    await first.append("s", [make_draft(needle)], NO_STREAM)

    async def cut_off(_shard: int) -> bool:
        return False

    first._parts.destroyer.carry_out = cut_off  # type: ignore[method-assign]  # as if it died here
    await first.erase({"s": {Address(0): b""}})
    assert not await first.scrubbed()
    await first.close()
    assert holding(cluster, needle)
    await scrubbed(await opened(JetStreamStore.open(cluster.url(name))))
    assert holding(cluster, needle) == []


async def test_a_long_append_that_is_refused_leaves_nothing(
    cluster: Cluster, store: JetStreamStore, name: str, needle: str
) -> None:
    await store.append("s", [make_draft("a")], NO_STREAM)
    ack = store.append("s", [make_draft(needle) for _ in range(1200)], 0)
    other = await JetStreamStore.open(cluster.url(name))
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
        async with asyncio.timeout(90):
            while not await store.scrubbed() or holding(cluster, needle):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    assert (await store.inspect()).findings == ()
