"""The checks of servers can fail: with one guard taken away, the fault after it is noticed.

Each test takes away one guard of a store or of its servers, does what another file does to them,
and expects the checker to find what the guard prevents.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from eventctx.stores.jetstream import requirements
from eventctx.stores.jetstream.verifying import SessionEnds
from eventctx.stores.postgres import durability, queries, reader
from tests.faults.counts import FULL
from tests.faults.servers.jetstream import jetstream
from tests.faults.servers.machines import cut_power, disk_for_machines, place
from tests.faults.servers.postgres_quorum import Quorum, quorum
from tests.faults.test_damaged_copies import cut_the_end, damaged_blocks, delete, fill
from tests.faults.test_servers import kill_all, kill_lonely_leader, try_out
from tests.faults.test_servers import shown as shown
from tests.faults.workload import Load
from tests.services.fixtures import one_process

pytestmark = [pytest.mark.slow, one_process("quorum"), pytest.mark.usefixtures("shown")]

LOAD = Load()

SPREAD = Load(sessions=100)
"""A commit that is halted holds up all who write to its sessions; here others pass it."""

NOT_LISTENING = "SELECT true, false, 'eventctx.meta'::regclass::oid::text"
"""A commit that notifies holds up all others that do; where nobody listens, they pass it."""

NO_FENCE = str(2**63 - 1)

Patch = pytest.MonkeyPatch

only_in_full = pytest.mark.skipif(
    not FULL, reason="tried in a full run alone: set EVENTCTX_FAULTS=full"
)


@pytest.fixture(scope="module")
def machines() -> Iterator[Quorum]:
    # Where a commit does not wait for the disk, the server writes now and then; seldom, here.
    with place() as folder, quorum(folder, {"wal_writer_delay": "10s"}) as running:
        yield running


@pytest.mark.parametrize("fence", [queries.FENCE, NO_FENCE], ids=["with it", "without it"])
async def test_of_halted_commits_the_fence_lets_no_subscriber_skip_one(
    fence: str, machines: Quorum, monkeypatch: Patch
) -> None:
    unfenced = {key: sql.replace(queries.FENCE, fence) for key, sql in queries._ALL.items()}
    monkeypatch.setattr(queries, "_ALL", unfenced)
    monkeypatch.setattr(queries, "FENCE", fence)
    monkeypatch.setattr(reader, "_LISTEN", NOT_LISTENING)
    shown = "commits halted, no fence" if fence == NO_FENCE else "commits halted, nobody listens"
    found = await try_out(machines, machines.halt_commits, shown, 1, SPREAD)
    assert found.keys() == ({"not delivered"} if fence == NO_FENCE else set())


def without_checks(monkeypatch: Patch, commits: str) -> None:
    """Let commits wait for this much, and nobody ask whether that is enough."""
    set_it = f"SELECT set_config('synchronous_commit', '{commits}', false)"
    monkeypatch.setattr(durability, "_COMMITS", {"local": set_it, "replicated": set_it})
    monkeypatch.setattr(durability, "_check_commits", lambda _: None)
    monkeypatch.setattr(durability.Durability, "confirm", lambda *_: None)


async def test_commits_that_wait_for_no_disk_are_lost(machines: Quorum, monkeypatch: Patch) -> None:
    without_checks(monkeypatch, "off")
    found = await try_out(
        machines, lambda: kill_all(machines), "all killed, synchronous_commit=off", 1, LOAD
    )
    assert found["lost"] > 0


@only_in_full
async def test_commits_that_wait_for_no_standby_are_lost(
    machines: Quorum, monkeypatch: Patch
) -> None:
    without_checks(monkeypatch, "local")
    found = await try_out(
        machines,
        lambda: kill_lonely_leader(machines),
        "leader killed alone, synchronous_commit=local",
        1,
        LOAD,
    )
    assert found["lost"] > 0


async def left_by_a_power_cut(sync: str | None) -> tuple[int, int]:
    """How many messages were acknowledged, and how many the best of the servers has after a cut."""
    with disk_for_machines() as disk, jetstream(disk.folder, sync=sync) as machines:
        store = await machines.open()
        await fill(store, 3)
        await asyncio.to_thread(machines.settle)
        acknowledged = len(await fill(store, 100, "later"))
        await asyncio.to_thread(cut_power, machines, disk, mended=False)
        # Without a leader the store does not come back, so each server is asked itself.
        nodes, until, most = machines.nodes, time.monotonic() + 15, 0
        while most < acknowledged and time.monotonic() < until:
            found = [machines.details(node, machines.stream) for node in nodes]
            most = max(one.get("state", {}).get("messages", 0) for one in found)
            await asyncio.sleep(0.2)
        await store.close()
        return acknowledged, most


@only_in_full
async def test_what_is_written_to_no_disk_is_lost_without_power(monkeypatch: Patch) -> None:
    acknowledged, left = await left_by_a_power_cut("always")
    print(f"sync_interval always: {acknowledged} records acknowledged, {left} messages left")
    assert left >= acknowledged
    monkeypatch.setattr(requirements, "_check", lambda *_: None)
    acknowledged, left = await left_by_a_power_cut(None)
    print(f"sync_interval default: {acknowledged} records acknowledged, {left} messages left")
    assert left < acknowledged


@only_in_full
async def test_a_leader_that_is_believed_unseen_serves_what_it_has(monkeypatch: Patch) -> None:
    async def anything(*_: object) -> int:
        return 2**62

    monkeypatch.setattr(SessionEnds, "deletions", anything)
    found: Counter[str] = Counter()
    with place() as folder, jetstream(folder) as machines:
        for trial in range(6):
            found += await damaged_blocks(machines, (cut_the_end, delete)[trial % 2], trial)
    assert found["silently short"] > 0
