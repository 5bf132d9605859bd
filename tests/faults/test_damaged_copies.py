"""One machine's files are damaged while it is down, then it leads: whole answers, or errors.

PostgreSQL finds a changed page by its checksum, and misses the end of a table that was cut off.
JetStream serves what it has. Neither tells a client; the store has to.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from eventctx.errors import EventctxError
from eventctx.log.record import Record, body_digest
from eventctx.log.store import NO_STREAM, EventStore
from eventctx.testing.store_contract.drafts import make_draft
from tests.faults.counts import report, trials
from tests.faults.histories import Seen
from tests.faults.servers.jetstream import JetStream, jetstream
from tests.faults.servers.machines import Machines, place, tried
from tests.faults.servers.postgres_quorum import DATABASE, Quorum, quorum
from tests.services.fixtures import one_process

Harm = Callable[[Path, random.Random], None]
Outcome = Literal["whole", "an error", "silently short"]

SESSIONS = ("a", "b", "c")


def flip_a_bit(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def cut_the_end(file: Path, chance: random.Random) -> None:
    """Leave a file half of its length, or less, at a multiple of a page's."""
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.truncate(chance.randrange(size // 4, size // 2) // 8192 * 8192)


def delete(file: Path, _: random.Random) -> None:
    file.unlink()


HARMS: tuple[Harm, ...] = (flip_a_bit, cut_the_end, delete)


async def fill(store: EventStore, appends: int = 300, prefix: str = "") -> list[Seen]:
    """Append to three sessions in turn, with bodies; returns what was acknowledged, in order."""
    there: list[Seen] = []
    heads = dict.fromkeys((prefix + name for name in SESSIONS), -1)
    for number in range(appends):
        session = prefix + SESSIONS[number % len(SESSIONS)]
        drafts = [make_draft(f"{number} " * 60), make_draft("x" * 900)]
        expected = heads[session] if heads[session] >= 0 else NO_STREAM
        there += map(Seen.of, (await store.append(session, drafts, expected)).records)
        heads[session] += len(drafts)
    return there


async def judge(store: EventStore, there: list[Seen]) -> Counter[Outcome]:
    """What the ways of reading make of a damaged store; ``there`` is what was acknowledged."""
    own = {name: [one for one in there if one.stream == name] for name in SESSIONS}
    # Each prints what went wrong.
    found = [await _outcome(_read(store, session), own[session]) for session in SESSIONS]
    found.append(await _outcome(map_seen(store.read_all()), there))
    backward = map_seen(store.read("a", backward=True, bodies=False))
    found.append(await _outcome(backward, own["a"][::-1]))
    ends = {(one.stream, one.position, one.digest) for one in (one[-1] for one in own.values())}

    async def heads() -> list[tuple[str, int, bytes]]:
        return sorted([(one.stream, one.head, one.digest) async for one in store.streams()])

    found.append(await _outcome(heads(), sorted(ends)))
    return Counter(found)


async def map_seen(records: AsyncIterator[Record]) -> list[Seen]:
    return [Seen.of(one) async for one in records]


async def _outcome(asked: Awaitable[object], wanted: list[Any]) -> Outcome:
    try:
        answer = await asked
    except EventctxError as error:
        print(f"  {type(error).__name__}: {str(error)[:160]}")
        return "an error"
    if answer == wanted:
        return "whole"
    print(f"  silent: {len(answer)} instead of {len(wanted)}")
    return "silently short"


async def _read(store: EventStore, session: str) -> list[Seen]:
    found = []
    async for record in store.read(session):
        for body in record.bodies:
            assert body.data is not None and body.salt is not None
            assert body_digest(body.salt, body.data) == body.digest, "changed words were read"
        found.append(Seen.of(record))
    return found


FILES = ("records", "records_place", "records_pkey")
"""The table, the index by stream and position, and the one by global position."""

pytestmark = [pytest.mark.slow, one_process("damage")]


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
    victim = (machines.leader() + 1) % machines.size
    machines.stop(victim)
    harm(chance.choice(machines.nodes[victim].blocks(machines.stream)), chance)
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
