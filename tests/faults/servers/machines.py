"""A cluster as the faults see it, and the folders and disks of its machines."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from eventctx.log.store import EventStore
from tests.faults.counts import FULL, trials
from tests.faults.disks import LoopDisk, loop_disk
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
