"""Servers that a measurement starts for itself, sized like real ones, and the time they work.

Tests start their servers small. A measurement wants the shared buffers, the write-ahead log and
the segments that an installation has; all else is the default. Their files lie in the temporary
folder, which must be on the disk that is to be measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.services import nats_server
from tests.services.postgres_server import Server

SETTINGS: Final = {
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "min_wal_size": "256MB",
    "max_connections": "300",
}
SEGMENT: Final = 16
"""MiB of a segment of the write-ahead log, as PostgreSQL's default has it."""

STANDBYS: Final = ("s1", "s2")
QUORUM: Final = f"ANY 1 ({', '.join(STANDBYS)})"


@contextmanager
def postgres() -> Iterator[Server]:
    """One PostgreSQL server, which nothing replicates."""
    server = Server(settings=SETTINGS)
    server.create()
    server.binaries.run("pg_resetwal", f"--wal-segsize={SEGMENT}", f"--pgdata={server.data}")
    with server:
        yield server


@contextmanager
def quorum() -> Iterator[Server]:
    """A primary whose commits wait for one of two standbys; all on this machine."""
    with ExitStack() as stack:
        primary = stack.enter_context(postgres())
        for name in STANDBYS:
            stack.enter_context(primary.standby(name))
        primary.configure(synchronous_standby_names=QUORUM)
        primary.reload()
        # A commit does not wait before the setting has been read.
        while primary.execute("SHOW synchronous_standby_names") != [(QUORUM,)]:
            pass
        yield primary


@contextmanager
def jetstream() -> Iterator[nats_server.Cluster]:
    """Three NATS servers that sync every message to the disk; all on this machine."""
    with nats_server.running() as cluster:
        yield cluster


# -- how long they work ----------------------------------------------------------------------------

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def processor_seconds(pids: Sequence[int]) -> float:
    """Processor time of these processes, and of those that they started, ended ones included."""
    wanted = set(pids)
    ticks = 0
    for number, parent, own, ended in _processes():
        if number in wanted or parent in wanted:
            ticks += own + (ended if number in wanted else 0)
    return ticks / _TICKS


def _processes() -> Iterator[tuple[int, int, int, int]]:
    """Of each process: its number, its parent's, its ticks, and those of its ended children."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # After the program's name, which may hold anything.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                own, ended = fields[11:13], fields[13:15]
                yield (
                    int(entry.name),
                    int(fields[1]),
                    sum(map(int, own)),
                    sum(map(int, ended)),
                )


def pids_of(server: Server | nats_server.Cluster) -> list[int]:
    """The processes that the others of a server come from."""
    if isinstance(server, Server):
        return [server.pid]
    return [node.process.pid for node in server.nodes if node.process is not None]
