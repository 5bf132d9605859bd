"""Stores on three machines that are killed, halted, cut off, and without power: nothing is lost.

PostgreSQL with a scripted promotion (quorum), PostgreSQL under Patroni, and NATS JetStream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pytest

from tests.faults.counts import FULL, trials
from tests.faults.servers.jetstream import jetstream
from tests.faults.servers.machines import Machines, cut_power, disk_for_machines, place, tried
from tests.faults.servers.networks import network
from tests.faults.servers.patroni import PatroniCluster, patroni
from tests.faults.servers.postgres_quorum import quorum
from tests.faults.servers.trials import (
    cut_off_leader,
    halt_leader,
    kill_all,
    kill_leader,
    kill_lonely_leader,
    replace_halted_leader,
    try_out,
)
from tests.faults.workload import Load

pytestmark = [
    pytest.mark.slow,
    # nats-py leaves the connection to a server that does not answer to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*StreamWriter:pytest.PytestUnraisableExceptionWarning"),
]

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
                pytest.mark.xdist_group("jetstream" if kind == "jetstream" else "quorum"),
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
