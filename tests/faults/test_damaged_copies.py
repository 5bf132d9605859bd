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

from tests.faults.counts import report, trials
from tests.faults.servers.damage import HARMS, Harm, fill, judge, summed
from tests.faults.servers.jetstream import JetStream, jetstream
from tests.faults.servers.places import place, skip_unless
from tests.faults.servers.postgres_quorum import DATABASE, Quorum, quorum

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


async def damaged_tables(machines: Quorum, harm: Harm, seed: int) -> Counter[str]:
    """What readers see of a table and of an index that were damaged, each in a new store."""
    outcomes = []
    for table in ("records", "records_stream_position_key"):
        machines.fresh()
        machines.options["durability"] = "replicated"
        store = await machines.open()
        there = await fill(store)
        await store.close()
        await asyncio.to_thread(
            damage_a_standby, machines, harm, table, random.Random(f"{seed} {table}")
        )
        store = await machines.open(patience=2.0)
        outcomes.append(await judge(store, there))
        await store.close()
        await asyncio.to_thread(machines.rebuild)
    return summed(outcomes)


async def test_a_damaged_standby_that_leads_serves_nothing_short() -> None:
    count = skip_unless(trials("quorum damaged copies"))
    found: Counter[str] = Counter()
    with place() as folder, quorum(folder) as machines:
        for trial in range(count):
            found += await damaged_tables(machines, HARMS[trial % len(HARMS)], trial)
    report("quorum damaged copies", found)
    assert found["silently short"] == 0
    assert found["an error"] > 0


def damage_a_replica(machines: JetStream, harm: Harm, chance: random.Random) -> int:
    """Damage a block of a follower that is down, and start it; returns its number."""
    leader = machines.leader()
    victim = (leader + 1) % machines.size
    machines.cluster.stop(victim)
    blocks = machines.cluster.nodes[victim].blocks(machines.stream)
    harm(chance.choice(blocks), chance)
    machines.mend()
    return victim


async def damaged_blocks(machines: JetStream, harm: Harm, seed: int) -> Counter[str]:
    """What readers see behind a damaged block: while another leads, and when its server leads."""
    machines.fresh()
    store = await machines.open()
    there = await fill(store)
    victim = await asyncio.to_thread(damage_a_replica, machines, harm, random.Random(seed))
    outcomes = [await judge(store, there)]
    await machines.let_lead(victim)
    outcomes.append(await judge(store, there))
    await store.close()
    return summed(outcomes)


async def test_a_damaged_replica_serves_nothing_short() -> None:
    count = skip_unless(trials("jetstream damaged copies"))
    found: Counter[str] = Counter()
    with place() as folder, jetstream(folder) as machines:
        for trial in range(count):
            found += await damaged_blocks(machines, HARMS[trial % len(HARMS)], trial)
    report("jetstream damaged copies", found)
    assert found["silently short"] == 0


def test_each_kind_of_harm_changes_a_file(tmp_path: Path) -> None:
    for harm in HARMS:
        file = tmp_path / "file"
        file.write_bytes(bytes(100_000))
        harm(file, random.Random(1))
        assert not file.exists() or file.read_bytes() != bytes(100_000)
