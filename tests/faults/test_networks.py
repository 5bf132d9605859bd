"""The cables of the tests' own network do what the tests of partitions rely on."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

import pytest

from tests.children import started
from tests.faults.servers.networks import Network, network

pytestmark = pytest.mark.slow

LISTEN = """
import socket, sys
server = socket.create_server((sys.argv[1], 4000))
print("ready", flush=True)
while True:
    server.accept()[0].close()
"""
REACH = """
import socket, sys
socket.create_connection((sys.argv[1], 4000), timeout=0.7)
"""


def reaches(net: Network, origin: int | None, other: int) -> bool:
    """Whether a machine, or the clients' (None), can connect to another one."""
    prefix = [] if origin is None else net.prefixes[origin]
    return (
        subprocess.run(
            [*prefix, sys.executable, "-c", REACH, net.hosts[other]], stderr=subprocess.DEVNULL
        ).returncode
        == 0
    )


def test_a_pulled_cable_cuts_from_all_and_a_parted_one_from_the_other_machines_alone() -> None:
    with network() as net, ExitStack() as running:
        for prefix, host in zip(net.prefixes, net.hosts, strict=True):
            server = running.enter_context(
                started(
                    [*prefix, sys.executable, "-c", LISTEN, host], stdout=subprocess.PIPE, text=True
                )
            )
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
        assert reaches(net, None, 0)
        assert reaches(net, 1, 0)
        net.pull(0)
        assert not reaches(net, None, 0)
        assert not reaches(net, 1, 0)
        assert reaches(net, 1, 2)
        net.heal()
        assert reaches(net, None, 0)
        assert reaches(net, 1, 0)
        net.part(0)
        assert reaches(net, None, 0)
        assert not reaches(net, 1, 0)
        assert not reaches(net, 0, 1)
        assert reaches(net, None, 1)
        net.heal()
        assert reaches(net, 0, 1)
