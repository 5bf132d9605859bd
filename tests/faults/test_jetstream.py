"""JetStream with three replicas, its machines killed, halted, cut off, and without power."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.counts import trials
from tests.faults.servers.jetstream import JetStream, jetstream
from tests.faults.servers.machines import cut_power, disk_for_machines
from tests.faults.servers.networks import network
from tests.faults.servers.places import place, tried
from tests.faults.servers.trials import (
    cut_off_leader,
    halt_leader,
    kill_all,
    kill_leader,
    kill_lonely_leader,
    try_out,
)
from tests.faults.workload import Load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("jetstream"),
    # nats-py leaves the connection to a server that does not answer to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*StreamWriter:pytest.PytestUnraisableExceptionWarning"),
]

LOAD = Load()


@pytest.fixture(scope="module")
def machines() -> Iterator[JetStream]:
    with place() as folder, jetstream(folder) as running:
        yield running


@tried("jetstream leaders killed")
async def test_a_leader_that_dies_loses_nothing(machines: JetStream) -> None:
    count = trials("jetstream leaders killed")
    assert not await try_out(machines, lambda: kill_leader(machines), "leader killed", count, LOAD)


@tried("jetstream all killed")
async def test_all_that_die_at_once_lose_nothing(machines: JetStream) -> None:
    count = trials("jetstream all killed")
    assert not await try_out(machines, lambda: kill_all(machines), "all killed", count, LOAD)


@tried("jetstream leaders killed alone")
async def test_a_leader_that_dies_while_nobody_listens_had_acknowledged_nothing(
    machines: JetStream,
) -> None:
    count = trials("jetstream leaders killed alone")
    assert not await try_out(
        machines, lambda: kill_lonely_leader(machines), "leader killed alone", count, LOAD
    )


@tried("jetstream leaders halted")
async def test_a_leader_that_is_halted_for_a_while_loses_nothing(machines: JetStream) -> None:
    count = trials("jetstream leaders halted")
    assert not await try_out(
        machines,
        lambda: halt_leader(machines, 12.0),
        "leader halted, replaced",
        count,
        LOAD,
        fresh_reads=False,
    )


@tried("jetstream leaders cut off")
async def test_a_leader_that_is_cut_off_loses_nothing() -> None:
    count = trials("jetstream leaders cut off")
    with place() as folder, network() as net, jetstream(folder, net) as machines:
        assert not await try_out(
            machines, lambda: cut_off_leader(machines, net), "leader cut off", count, LOAD
        )


@tried("jetstream leaders parted")
async def test_a_leader_with_its_clients_alone_acknowledges_nothing() -> None:
    count = trials("jetstream leaders parted")
    with place() as folder, network() as net, jetstream(folder, net) as machines:
        assert not await try_out(
            machines,
            lambda: cut_off_leader(machines, net, from_clients=False),
            "leader parted from the others",
            count,
            LOAD,
            fresh_reads=False,
        )


@tried("jetstream power cuts")
async def test_a_power_cut_of_all_loses_nothing() -> None:
    count = trials("jetstream power cuts")
    with disk_for_machines() as disk, jetstream(disk.folder) as machines:
        assert not await try_out(
            machines, lambda: cut_power(machines, disk), "power cut of all", count, LOAD
        )
