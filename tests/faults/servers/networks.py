"""A network of the tests' own: each machine in a namespace, with a cable that can be pulled.

The namespaces hang on a bridge of this machine, where the clients are. It needs root on Linux.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.faults.disks import run

_networks = itertools.count()


_ip = partial(run, "ip")


class Network:
    """Addresses of machines, and the words before a command that run it on one of them."""

    def __init__(self, name: str, subnet: str, size: int) -> None:
        self.gate = f"{subnet}.1"
        self.hosts = [f"{subnet}.{11 + number}" for number in range(size)]
        self.spaces = [f"{name}n{number}" for number in range(size)]
        self.prefixes = [["ip", "netns", "exec", space] for space in self.spaces]
        self._bridge = name
        self._cables = [f"{name}v{number}" for number in range(size)]
        self._alone: set[int] = set()

    def make(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge", "forward_delay", 0)
        _ip("addr", "add", f"{self.gate}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for host, space, cable in zip(self.hosts, self.spaces, self._cables, strict=True):
            _ip("netns", "add", space)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", cable, "master", self._bridge)
            _ip("link", "set", cable, "up")
            _ip("-n", space, "addr", "add", f"{host}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def remove(self) -> None:
        for command in (
            *(("netns", "del", space) for space in self.spaces),
            *(("link", "del", cable) for cable in self._cables),
            ("link", "del", self._bridge),
        ):
            with suppress(OSError):  # it was not made, or went with its namespace
                _ip(*command)

    def pull(self, number: int) -> None:
        _ip("link", "set", self._cables[number], "down")

    def part(self, number: int) -> None:
        """Cut a machine off from the other machines, and leave it to its clients."""
        cable, host = self._cables[number], self.hosts[number]
        _ip("link", "set", cable, "nomaster")
        _ip("addr", "add", f"{self.gate}/32", "dev", cable)
        _ip("route", "add", f"{host}/32", "dev", cable)
        _ip("-n", self.spaces[number], "neigh", "flush", "all")
        self._alone.add(number)

    def heal(self) -> None:
        for number, cable in enumerate(self._cables):
            if number in self._alone:
                _ip("route", "del", f"{self.hosts[number]}/32", "dev", cable)
                _ip("addr", "del", f"{self.gate}/32", "dev", cable)
                _ip("link", "set", cable, "master", self._bridge)
                _ip("-n", self.spaces[number], "neigh", "flush", "all")
            _ip("link", "set", cable, "up")
        _ip("neigh", "flush", "dev", self._bridge)
        self._alone.clear()


@contextmanager
def network(size: int = 3) -> Iterator[Network]:
    """A network until the end of the block. Skips the test where none can be made."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a network of one's own needs root on Linux")
    made = Network(f"ec{os.getpid() % 100000}{next(_networks)}", _free_subnet(), size)
    try:
        try:
            made.make()
        except OSError as error:
            pytest.skip(f"no network namespaces can be made here ({error})")
        yield made
    finally:
        made.remove()


def _free_subnet() -> str:
    """A subnet of 10.0.0.0/8 that no route of this machine leads to."""
    routes = Path("/proc/net/route").read_text()
    first = os.getpid() % 200
    for third in (*range(first, 250), *range(first)):
        if f"{third:02X}D50A" not in routes:
            return f"10.213.{third}"
    raise OSError("no free subnet below 10.213.0.0/16")
