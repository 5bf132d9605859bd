"""Servers that a measurement starts for itself, sized like real ones.

Tests start their servers small. A measurement wants the shared buffers, the write-ahead log and
the segments that an installation has; all else is the default. Their files lie in the temporary
folder, which must be on the disk that is to be measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
