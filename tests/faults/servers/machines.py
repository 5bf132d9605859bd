"""A cluster as the faults see it, the folders and disks of its machines, and their network.

In it each machine has a namespace, with a cable that can be pulled. The namespaces hang on a bridge
of this machine, where the clients are. It needs root on Linux.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from eventctx.log.store import EventStore
from tests.faults.counts import FULL, trials
from tests.faults.disks import LoopDisk, loop_disk, run
from tests.faults.servers import trees
from tests.services.in_memory import memory_folder


@contextmanager
def place() -> Iterator[Path]:
    """A folder that any user may enter, since PostgreSQL does not run as root.

    It is on the disk in a full run, whose figures are shown.
    """
    where = None if FULL else memory_folder()
    folder = Path(tempfile.mkdtemp(prefix="eventctx-machines-", dir=where))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tried(fault: str) -> pytest.MarkDecorator:
    """Skip a test without trials in this run, before machines are started for it."""
    reason = "tried in a full run alone: set EVENTCTX_FAULTS=full"
    return pytest.mark.skipif(not trials(fault), reason=reason)


class Machines(Protocol):
    """Three machines with one store. Numbers are those of machines; without any, all are meant."""

    name: str
    size: int

    async def open(self, *, patience: float = 60.0, read_only: bool = False) -> EventStore:
        """The store, as a client of all machines."""

    def fresh(self) -> None:
        """From now on ``open`` means another store, an empty one."""

    def settle(self) -> None:
        """Return when all that was done until now is on every disk, acknowledged or not."""

    def leader(self) -> int:
        """The machine that takes writes now; waits until there is one."""

    def kill(self, *numbers: int) -> None:
        """kill -9 every process of these machines at once."""

    def start(self, *numbers: int) -> None:
        """Start these machines on what is on their disks; they need not work together yet."""

    def pause(self, number: int) -> None:
        """SIGSTOP every process of a machine: it says nothing, and its connections stay open."""

    def resume(self, number: int) -> None:
        """Let a machine go on."""

    def fail_over(self, old: int) -> None:
        """Return when another machine than ``old``, which is dead or away, takes writes."""

    def mend(self) -> None:
        """Start what does not run, and return when all machines work together again."""

    def processes(self) -> list[int]:
        """Every process of every machine."""


@contextmanager
def disk_for_machines(megabytes: int = 768) -> Iterator[LoopDisk]:
    """A disk that any user may enter. Skips the test where none can be made."""
    with loop_disk(megabytes) as disk:
        disk.folder.chmod(0o755)
        yield disk


def cut_power(machines: Machines, disk: LoopDisk, *, mended: bool = True) -> None:
    """Stop all machines and their disk in the middle of what is under way; start them again.

    ``mended``: they must work together again, which those that lost something may never do.

    The processes are halted before the disk, as a real cut halts the processor: a sync that is
    under way while ext4 is shut down may return as if it had been made (test_power_cuts.py), and
    nobody may acknowledge anything upon that.
    """
    pids = machines.processes()
    for number in range(machines.size):
        machines.pause(number)
    # No thread runs then; in a call of the disk it may hang on.
    trees.until(lambda: all(trees.stands(one, "TtDZX") for one in pids), "processes go on")
    disk.cut_power()
    machines.kill()
    disk.unmount()
    disk.mount()
    if mended:
        machines.mend()
    else:
        machines.start(*range(machines.size))


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
