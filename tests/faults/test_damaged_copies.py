"""One machine's files are damaged while it is down, then it leads: whole answers, or errors.

PostgreSQL finds a changed page by its checksum, and misses the end of a table that was cut off.
JetStream serves what it has. Neither tells a client; the store has to.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from eventctx.errors import EventctxError
from tests.faults.counts import report, trials
from tests.faults.histories import Seen
from tests.faults.servers.damage import HARMS, Harm, fill, judge
from tests.faults.servers.jetstream import JetStream, jetstream
from tests.faults.servers.machines import Machines, place, tried
from tests.faults.servers.postgres_quorum import DATABASE, Quorum, quorum

FILES = ("records", "records_place", "records_pkey")
"""The table, the index by stream and position, and the one by global position."""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("damage")]


def damage_a_standby(machines: Quorum, harm: Harm, table: str, chance: random.Random) -> None:
    """Damage a table's file of a standby that is down, and let it lead alone."""
    machines.settle()
    schema = machines.options["schema"]
    leader = machines.nodes[machines.leader()]
    ((file,),) = leader.execute(
        "SELECT pg_relation_filepath(%s::regclass)", f"{schema}.{table}", database=DATABASE
    )
    victim = (machines.leader() + 1) % machines.size
    node = machines.nodes[victim]
    node.execute("CHECKPOINT")
    for one in machines.nodes:
        one.stop()
    harm(node.data / file, chance)
    node.start()
    machines.promote(victim)
    # It leads alone, so nothing more can be acknowledged; reading is what matters here.
    machines.options["durability"] = "local"


async def damaged_file(machines: Quorum, harm: Harm, file: str, seed: int) -> Counter[str]:
    machines.fresh()
    machines.options["durability"] = "replicated"
    store = await machines.open()
    there = await fill(store)
    await store.close()
    print(f"{harm.__name__} of {file}:")
    await asyncio.to_thread(damage_a_standby, machines, harm, file, random.Random(seed))
    return await judged_by_a_new_client(machines, there)


@tried("quorum damaged copies")
async def test_a_damaged_standby_that_leads_serves_nothing_short() -> None:
    count = trials("quorum damaged copies")
    found: Counter[str] = Counter()
    with place() as folder, quorum(folder) as machines:
        for trial in range(count):
            harm, file = HARMS[trial % len(HARMS)], FILES[trial // len(HARMS) % len(FILES)]
            found += await damaged_file(machines, harm, file, trial)
            await asyncio.to_thread(machines.rebuild)
    report("quorum damaged copies", found)
    assert found["silently short"] == 0
    assert found["an error"] > 0


def damage_a_replica(machines: JetStream, harm: Harm, chance: random.Random) -> int:
    """Damage a block of a follower that is down, and start it; returns its number."""
    leader = machines.leader()
    victim = (leader + 1) % machines.size
    machines.stop(victim)
    blocks = machines.nodes[victim].blocks(machines.stream)
    harm(chance.choice(blocks), chance)
    machines.mend()
    return victim


async def damaged_blocks(machines: JetStream, harm: Harm, seed: int) -> Counter[str]:
    """What new clients see behind damaged blocks: while another leads, and when theirs leads."""
    machines.fresh()
    store = await machines.open()
    there = await fill(store)
    await store.close()
    print(f"{harm.__name__}:")
    victim = await asyncio.to_thread(damage_a_replica, machines, harm, random.Random(seed))
    found = await judged_by_a_new_client(machines, there)
    if await machines.let_lead(victim):
        found["damaged leaders"] += 1
        found += await judged_by_a_new_client(machines, there)
    return found


async def judged_by_a_new_client(machines: Machines, there: list[Seen]) -> Counter[str]:
    """What somebody sees who has seen nothing of the store before."""
    try:
        store = await machines.open(patience=5.0, read_only=True)
    except EventctxError as error:
        print(f"  {type(error).__name__}: {str(error)[:160]}")
        return Counter({"an error": 1})
    try:
        return Counter[str](await judge(store, there))
    finally:
        await store.close()


@tried("jetstream damaged copies")
async def test_a_damaged_replica_serves_nothing_short() -> None:
    count = trials("jetstream damaged copies")
    found: Counter[str] = Counter()
    with place() as folder, jetstream(folder) as machines:
        for trial in range(count):
            found += await damaged_blocks(machines, HARMS[trial % len(HARMS)], trial)
    report("jetstream damaged copies", found)
    assert found["silently short"] == 0
    assert found["damaged leaders"] > 0


def test_each_kind_of_harm_changes_a_file(tmp_path: Path) -> None:
    for harm in HARMS:
        file = tmp_path / "file"
        file.write_bytes(bytes(100_000))
        harm(file, random.Random(1))
        assert not file.exists() or file.read_bytes() != bytes(100_000)
