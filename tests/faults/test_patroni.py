"""PostgreSQL under Patroni: machines die or go away, and Patroni promotes another one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.counts import trials
from tests.faults.servers.networks import network
from tests.faults.servers.patroni import PatroniCluster, patroni
from tests.faults.servers.places import place, tried
from tests.faults.servers.trials import (
    cut_off_leader,
    kill_all,
    kill_leader,
    replace_halted_leader,
    try_out,
)
from tests.faults.workload import Load

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("quorum")]

LOAD = Load(patience=120.0)


@pytest.fixture(scope="module")
def machines() -> Iterator[PatroniCluster]:
    with place() as folder, patroni(folder) as running:
        yield running


@tried("patroni servers killed")
async def test_a_server_that_dies_is_replaced_and_loses_nothing(machines: PatroniCluster) -> None:
    def kill_server() -> None:
        old = machines.leader()
        machines.kill_server(old)
        machines.fail_over(old)
        machines.mend()

    count = trials("patroni servers killed")
    assert not await try_out(machines, kill_server, "leader's server killed", count, LOAD)


@tried("patroni machines killed")
async def test_a_machine_that_dies_is_replaced_and_loses_nothing(machines: PatroniCluster) -> None:
    count = trials("patroni machines killed")
    assert not await try_out(
        machines, lambda: kill_leader(machines), "leader's machine killed", count, LOAD
    )


@tried("patroni all killed")
async def test_all_that_die_at_once_lose_nothing(machines: PatroniCluster) -> None:
    count = trials("patroni all killed")
    assert not await try_out(machines, lambda: kill_all(machines), "all killed", count, LOAD)


@tried("patroni leaders replaced")
async def test_a_leader_that_was_replaced_acknowledges_nothing(machines: PatroniCluster) -> None:
    count = trials("patroni leaders replaced")
    assert not await try_out(
        machines, lambda: replace_halted_leader(machines), "leader halted, replaced", count, LOAD
    )


@tried("patroni leaders cut off")
async def test_a_leader_that_is_cut_off_loses_nothing() -> None:
    count = trials("patroni leaders cut off")
    with place() as folder, network() as net, patroni(folder, net) as machines:
        assert not await try_out(
            machines, lambda: cut_off_leader(machines, net), "leader cut off", count, LOAD
        )
