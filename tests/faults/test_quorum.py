"""PostgreSQL with quorum replication, its machines killed, halted, cut off, and without power."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.counts import trials
from tests.faults.servers.machines import cut_power, disk_for_machines
from tests.faults.servers.networks import network
from tests.faults.servers.places import place, tried
from tests.faults.servers.postgres_quorum import Quorum, quorum
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

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("quorum")]

LOAD = Load()


@pytest.fixture(scope="module")
def machines() -> Iterator[Quorum]:
    with place() as folder, quorum(folder) as running:
        yield running


@tried("quorum leaders killed")
async def test_a_leader_that_dies_loses_nothing(machines: Quorum) -> None:
    count = trials("quorum leaders killed")
    assert not await try_out(machines, lambda: kill_leader(machines), "leader killed", count, LOAD)


@tried("quorum all killed")
async def test_all_that_die_at_once_lose_nothing(machines: Quorum) -> None:
    count = trials("quorum all killed")
    assert not await try_out(machines, lambda: kill_all(machines), "all killed", count, LOAD)


@tried("quorum leaders killed alone")
async def test_a_leader_that_dies_while_nobody_listens_had_acknowledged_nothing(
    machines: Quorum,
) -> None:
    count = trials("quorum leaders killed alone")
    assert not await try_out(
        machines, lambda: kill_lonely_leader(machines), "leader killed alone", count, LOAD
    )


@tried("quorum commits halted")
async def test_a_commit_that_takes_long_is_skipped_by_no_subscriber(machines: Quorum) -> None:
    count = trials("quorum commits halted")
    assert not await try_out(machines, machines.halt_commits, "commits halted", count, LOAD)


@tried("quorum leaders halted")
async def test_a_leader_that_is_halted_for_a_while_loses_nothing(machines: Quorum) -> None:
    count = trials("quorum leaders halted")
    assert not await try_out(machines, lambda: halt_leader(machines), "leader halted", count, LOAD)


@tried("quorum leaders replaced")
async def test_a_leader_that_was_replaced_acknowledges_nothing(machines: Quorum) -> None:
    count = trials("quorum leaders replaced")
    assert not await try_out(
        machines, lambda: replace_halted_leader(machines), "leader halted, replaced", count, LOAD
    )


@tried("quorum leaders cut off")
async def test_a_leader_that_is_cut_off_loses_nothing() -> None:
    count = trials("quorum leaders cut off")
    with place() as folder, network() as net, quorum(folder, network=net) as machines:
        assert not await try_out(
            machines, lambda: cut_off_leader(machines, net), "leader cut off", count, LOAD
        )


@tried("quorum leaders parted")
async def test_a_leader_with_its_clients_alone_acknowledges_nothing() -> None:
    count = trials("quorum leaders parted")
    with place() as folder, network() as net, quorum(folder, network=net) as machines:
        assert not await try_out(
            machines,
            lambda: cut_off_leader(machines, net, from_clients=False),
            "leader parted from the others",
            count,
            LOAD,
            fresh_reads=False,
        )


@tried("quorum power cuts")
async def test_a_power_cut_of_all_loses_nothing() -> None:
    count = trials("quorum power cuts")
    with disk_for_machines() as disk, quorum(disk.folder / "machines") as machines:
        assert not await try_out(
            machines, lambda: cut_power(machines, disk), "power cut of all", count, LOAD
        )
