"""Stores on three machines that are killed, halted, cut off, and without power: nothing is lost.

PostgreSQL with a scripted promotion (quorum), PostgreSQL under Patroni, and NATS JetStream.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pytest

from eventctx.aio import finish
from tests.faults.counts import FULL, trials
from tests.faults.histories import Finding, check, count
from tests.faults.servers.jetstream import jetstream
from tests.faults.servers.machines import (
    Machines,
    Network,
    cut_power,
    disk_for_machines,
    network,
    place,
    tried,
)
from tests.faults.servers.patroni import PatroniCluster, patroni
from tests.faults.servers.postgres_quorum import quorum
from tests.faults.workload import Load, run
from tests.services.fixtures import one_process

pytestmark = [
    pytest.mark.slow,
    # nats-py leaves the connection to a server that does not answer to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*StreamWriter:pytest.PytestUnraisableExceptionWarning"),
]

HALT_SECONDS = 3.0
"""How long a machine is halted. It is longer than the servers wait for a sign of life."""


ROWS: list[str] = []
"""Of every fault that was tried by this process, in Markdown."""


@pytest.fixture(scope="session", autouse=True)
def shown() -> Iterator[None]:
    """Show the table behind the last test of a process."""
    yield
    heads = ("store", "fault", "trials", "acknowledged", "without an answer", "lost", "twice")
    heads += ("other findings", "longest stall")
    if ROWS:
        print(f"\n| {' | '.join(heads)} |", "|---" * len(heads) + "|", *ROWS, sep="\n")


async def try_out(
    machines: Machines,
    fault: Callable[[], None],
    name: str,
    times: int,
    load: Load,
    *,
    fresh_reads: bool = True,
    seed: int = 1,
) -> Counter[str]:
    """Try a fault so often; returns how often each rule of histories was broken.

    Each trial has a store of its own, whose making is on the disks: the fault strikes what is
    appended, not tables.

    Raises what ``run`` raises.
    """
    found: Counter[str] = Counter()
    acknowledged = unknown = 0
    stall = 0.0
    for trial in range(times):
        machines.fresh()
        done = await run(
            machines.open,
            # To its end, also when a client fails meanwhile: it may start servers again.
            lambda: finish(asyncio.to_thread(fault)),
            load,
            settle=lambda: asyncio.to_thread(machines.settle),
            seed=seed * 1000 + trial,
        )
        findings = check(done.history, done.stored, fresh_reads=fresh_reads)
        # Nobody damaged anything, so nobody should have been told so.
        findings += [Finding("damage where none is", what) for what in done.loud]
        broken = count(findings)
        for rule in broken:
            print(*[f"{rule}: {one.what}" for one in findings if one.rule == rule][:5], sep="\n")
        found += broken
        acknowledged += len(done.history.acknowledged())
        unknown += sum(one.outcome == "unknown" for one in done.history.appends)
        stall = max(stall, done.stall)
    shown = dict(found)
    lost, twice = shown.pop("lost", 0), shown.pop("duplicated", 0)
    twice += shown.pop("one version twice", 0)
    others = ", ".join(f"{often} {rule}" for rule, often in shown.items()) or "0"
    row = [machines.name, name, times, f"{acknowledged:,}", unknown, lost, twice, others]
    ROWS.append(f"| {' | '.join(map(str, row))} | {stall:.1f} s |")
    return found


def kill_leader(machines: Machines) -> None:
    """The leader dies at once, another one takes over, and it comes back as a follower."""
    old = machines.leader()
    machines.kill(old)
    machines.fail_over(old)
    machines.mend()


def kill_all(machines: Machines) -> None:
    machines.kill()
    machines.mend()


def kill_lonely_leader(machines: Machines) -> None:
    """The others die, and the leader goes on alone for a second; then it dies, and they lead."""
    old = machines.leader()
    others = [number for number in range(machines.size) if number != old]
    machines.kill(*others)
    time.sleep(1.0)
    machines.kill(old)
    machines.start(*others)
    machines.fail_over(old)
    machines.mend()


def halt_leader(machines: Machines, seconds: float = HALT_SECONDS) -> None:
    """The leader is halted and goes on; meanwhile another one may have taken over."""
    old = machines.leader()
    machines.pause(old)
    try:
        time.sleep(seconds)
    finally:
        machines.resume(old)
    machines.mend()


def replace_halted_leader(machines: Machines) -> None:
    """The leader is halted, another one takes over, and the old one goes on as if it led."""
    old = machines.leader()
    machines.pause(old)
    try:
        machines.fail_over(old)
        time.sleep(HALT_SECONDS)
    finally:
        machines.resume(old)
    time.sleep(HALT_SECONDS)
    machines.mend()


def cut_off_leader(machines: Machines, network: Network, *, from_clients: bool = True) -> None:
    """The leader is cut off from the other machines; it may be left to its clients."""
    old = machines.leader()
    if from_clients:
        network.pull(old)
    else:
        network.part(old)
    try:
        machines.fail_over(old)
        time.sleep(2 * HALT_SECONDS)
    finally:
        network.heal()
    machines.mend()


STARTED: dict[str, Callable[..., AbstractContextManager[Any]]] = {
    "quorum": quorum,
    "patroni": patroni,
    "jetstream": jetstream,
}
LOADS = {"quorum": Load(), "patroni": Load(patience=120.0), "jetstream": Load()}


class Fault(NamedTuple):
    """What befalls the machines; ``shown`` is its name in the table."""

    shown: str
    strike: Callable[[Any], None]
    fresh_reads: bool = True


def kill_server(machines: PatroniCluster) -> None:
    old = machines.leader()
    machines.kill_server(old)
    machines.fail_over(old)
    if FULL:  # else nothing comes after this trial that needs the old leader
        machines.mend()


FAULTS = {
    "quorum leaders killed": Fault("leader killed", kill_leader),
    "quorum all killed": Fault("all killed", kill_all),
    "quorum leaders killed alone": Fault("leader killed alone", kill_lonely_leader),
    "quorum commits halted": Fault("commits halted", lambda one: one.halt_commits()),
    "quorum leaders halted": Fault("leader halted", halt_leader),
    "quorum leaders replaced": Fault("leader halted, replaced", replace_halted_leader),
    "patroni servers killed": Fault("leader's server killed", kill_server),
    "patroni machines killed": Fault("leader's machine killed", kill_leader),
    "patroni all killed": Fault("all killed", kill_all),
    "patroni leaders replaced": Fault("leader halted, replaced", replace_halted_leader),
    "jetstream leaders killed": Fault("leader killed", kill_leader),
    "jetstream all killed": Fault("all killed", kill_all),
    "jetstream leaders killed alone": Fault("leader killed alone", kill_lonely_leader),
    "jetstream leaders halted": Fault(
        "leader halted, replaced", lambda one: halt_leader(one, 12.0), fresh_reads=False
    ),
}

FROM_ALL = ("quorum leaders cut off", "patroni leaders cut off", "jetstream leaders cut off")
FROM_MACHINES = ("quorum leaders parted", "jetstream leaders parted")
POWER_CUTS = ("quorum power cuts", "jetstream power cuts")


def each(faults: Iterable[str]) -> list[Any]:
    """The faults with their kind of machines; those of a kind run in one process."""
    kinds = [(fault.split()[0], fault) for fault in faults]
    return [
        pytest.param(
            kind,
            fault,
            id=fault,
            marks=[
                tried(fault),
                one_process("machines with NATS" if kind == "jetstream" else "quorum"),
            ],
        )
        for kind, fault in kinds
    ]


@pytest.fixture(scope="module")
def machines(request: pytest.FixtureRequest) -> Iterator[Machines]:
    with place() as folder, STARTED[request.param](folder) as running:
        yield running


@pytest.mark.parametrize(("machines", "fault"), each(FAULTS), indirect=["machines"])
async def test_machines_that_die_or_stand_lose_nothing(machines: Machines, fault: str) -> None:
    shown, strike, fresh_reads = FAULTS[fault]
    load = LOADS[fault.split()[0]]
    assert not await try_out(
        machines, lambda: strike(machines), shown, trials(fault), load, fresh_reads=fresh_reads
    )


@pytest.mark.parametrize(("kind", "fault"), each([*FROM_ALL, *FROM_MACHINES]))
async def test_a_leader_that_is_cut_off_loses_nothing(kind: str, fault: str) -> None:
    """Left to its clients, it acknowledges nothing, and may show what is old."""
    from_clients = fault in FROM_ALL
    shown = "leader cut off" if from_clients else "leader parted from the others"
    with place() as folder, network() as net, STARTED[kind](folder, network=net) as machines:
        assert not await try_out(
            machines,
            lambda: cut_off_leader(machines, net, from_clients=from_clients),
            shown,
            trials(fault),
            LOADS[kind],
            fresh_reads=from_clients,
        )


@pytest.mark.parametrize(("kind", "fault"), each(POWER_CUTS))
async def test_a_power_cut_of_all_loses_nothing(kind: str, fault: str) -> None:
    with disk_for_machines() as disk, STARTED[kind](disk.folder / "machines") as machines:
        assert not await try_out(
            machines,
            lambda: cut_power(machines, disk),
            "power cut of all",
            trials(fault),
            LOADS[kind],
        )
