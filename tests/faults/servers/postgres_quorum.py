"""PostgreSQL on three machines: a commit counts when one of the other two has it on its disk, too.

A script here promotes a standby, as an operator's would. Under Patroni, Patroni does.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg

from eventctx.log.store import EventStore
from eventctx.stores.location import open_store
from tests.faults.servers import trees
from tests.faults.servers.machines import Network
from tests.how_much import some
from tests.services.postgres_binaries import Binaries
from tests.services.postgres_server import Server

DATABASE = "faults"

LONGEST_HALT = 2.0
"""Seconds for which a process of a server is halted at most."""

_QUORUM = "ANY 1 (n0, n1, n2)"
"""On every machine the same: none is a standby of its own, so two are left to wait for."""

SETTINGS = {
    "wal_receiver_timeout": "2s",
    "wal_sender_timeout": "2s",
    "wal_retrieve_retry_interval": "200ms",
    "wal_keep_size": "64MB",
    "max_wal_size": "64MB",
    "max_connections": "100",
    "hot_standby_feedback": "off",
    "tcp_user_timeout": "3s",
    "client_connection_check_interval": "1s",
}


class _BinariesElsewhere(Binaries):
    """Programs that run after the words of a prefix, as in a network namespace.

    These words need root, so the programs change their user after them.
    """

    prefix: Sequence[str] = ()

    def command(self, program: str, *arguments: object) -> list[str]:
        entry = pwd.getpwnam(str(self.user))
        user = ("setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups")
        return [*self.prefix, *user, *super().command(program, *arguments)]

    def as_user(self) -> dict[str, object]:
        return {}


class _ServerElsewhere(Server):
    """A server with an address of its own."""

    def __init__(self, host: str, prefix: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self.host = host
        self.binaries = _BinariesElsewhere(*self.binaries)
        self.binaries.prefix = prefix
        self._settings["listen_addresses"] = host

    def create(self) -> None:
        super().create()
        self.allow(*EVERYBODY)


EVERYBODY = ("local all all trust", "host all all all trust", "host replication all all trust")


class PostgresMachines:
    """What both kinds of machines with PostgreSQL share; each store has a schema of its own."""

    size = 3

    def __init__(self) -> None:
        self.options = {"durability": "replicated"}
        self.nodes: list[Any] = []
        self._names = itertools.count(1)
        self.fresh()

    def leader(self) -> int:
        raise NotImplementedError

    async def open(self, *, patience: float = 60.0, read_only: bool = False) -> EventStore:
        """The store on whichever machine takes writes."""
        places = ",".join(f"{node.host}:{node.port}" for node in self.nodes)
        options = {"target_session_attrs": "read-write", "connect_timeout": "2", **self.options}
        url = f"postgresql://postgres@{places}/{DATABASE}?{urlencode(options)}"
        return await open_store(url, patience=patience, read_only=read_only)

    def fresh(self) -> None:
        self.options["schema"] = f"faults{next(self._names)}"

    def connection(self) -> psycopg.Connection[Any]:
        leader = self.nodes[self.leader()]
        url = f"postgresql://postgres@{leader.host}:{leader.port}/postgres"
        return psycopg.connect(url, autocommit=True)

    def settle(self) -> None:
        """Let the leader flush all it has; wait for its standbys; flush all disks."""
        behind = """
            SELECT FROM pg_stat_replication
            WHERE state <> 'streaming' OR replay_lsn < %s::pg_lsn"""
        with self.connection() as connection:
            connection.execute("CHECKPOINT")
            here = connection.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
            trees.until(lambda: not connection.execute(behind, here).fetchall(), "standbys lag")
        os.sync()


class Quorum(PostgresMachines):
    """``Machines`` with PostgreSQL and a scripted promotion; machine 0 leads first."""

    name = "PostgreSQL, quorum"

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        network: Network | None = None,
    ) -> None:
        super().__init__()
        self._leader = 0
        self._network = network
        self.nodes = [self._server(folder, number, settings or {}) for number in range(self.size)]

    def _server(self, folder: Path, number: int, settings: Mapping[str, str]) -> Server:
        place = folder / f"n{number}"
        place.mkdir(parents=True)
        settings = {**SETTINGS, "cluster_name": f"n{number}", **settings}
        if self._network is None:
            return Server(settings=settings, folder=place)
        host, prefix = self._network.hosts[number], self._network.prefixes[number]
        return _ServerElsewhere(host, prefix, settings=settings, folder=place)

    def create(self) -> None:
        first = self.nodes[0]
        first.create()
        first.configure(synchronous_standby_names="")
        first.start()
        first.execute(f"CREATE DATABASE {DATABASE}")
        for number in (1, 2):  # all begin as copies of one folder, and these get every record of 0
            self.nodes[number].create()
            self._follow_from_its_start(number)
        for node in self.nodes:
            node.configure(synchronous_standby_names=_QUORUM)
            node.reload()
        self._wait_for_standbys(2)

    def leader(self) -> int:
        return self._leader

    def kill(self, *numbers: int) -> None:
        chosen = [self.nodes[number] for number in numbers or range(self.size)]
        trees.kill([node.pid for node in chosen if node.running])
        for node in chosen:
            node.kill()

    def start(self, *numbers: int) -> None:
        for number in numbers:
            self.nodes[number].start()

    def pause(self, number: int) -> None:
        if self.nodes[number].running:
            self.nodes[number].pause()

    def resume(self, number: int) -> None:
        self.nodes[number].resume()

    def processes(self) -> list[int]:
        running = [node for node in self.nodes if node.running]
        return [pid for node in running for pid in (node.pid, *node.children())]

    def halt_commits(self, times: int = some(8, 20), seconds: float = 0.15) -> None:
        """Halt one commit after the other: it has its place in the log, and nobody sees it yet.

        Meanwhile others commit after it. Whoever reads up to them has to come back for it. Most
        signals come when the standbys have answered already, and do not count.
        """
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' LIMIT 1"
        still = "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = %s"
        halted = 0
        with self.connection() as connection:
            while halted < times:
                if (found := connection.execute(waiting).fetchone()) is None:
                    continue
                # One that had its answer may hold a lock that the next query waits for.
                resumed = threading.Timer(LONGEST_HALT, trees.send, (found, signal.SIGCONT))
                resumed.start()
                trees.send(found, signal.SIGSTOP)
                try:
                    if connection.execute(still, found).fetchone() is None:
                        continue
                    time.sleep(seconds)
                finally:
                    resumed.cancel()
                    trees.send(found, signal.SIGCONT)
                halted += 1

    def fail_over(self, old: int) -> None:
        """Promote the standby that has received most; nobody listens to the old leader any more.

        That comes first: a leader that is only away must find nobody who takes its records, or it
        could still acknowledge them.
        """
        left = [number for number in range(self.size) if number != old]
        for number in left:
            self._follow(number, None)
        self._leader = max(left, key=self._received)
        self.nodes[self._leader].promote()
        for number in left:
            if number != self._leader:
                self._follow(number, self._leader)

    def promote(self, number: int) -> None:
        """Let this very machine lead, whatever it has received; the others are down."""
        self._leader = number
        self.nodes[number].promote()

    def rebuild(self) -> None:
        for node in self.nodes:
            node.kill()
            shutil.rmtree(node.data, ignore_errors=True)
        self._leader = 0
        self.create()

    def mend(self) -> None:
        """See ``Machines.mend``: who led before and who fell behind begins with a fresh copy."""
        leader = self.nodes[self._leader]
        if not leader.running:
            leader.start()
        for number, node in enumerate(self.nodes):
            if node is leader or (node.running and self._is_standby(node)):
                continue
            if not node.running and (node.data / "standby.signal").exists():
                node.start()
            else:
                node.kill()
                self._copy(number)
        self._wait_for_standbys(2)

    def _copy(self, number: int) -> None:
        """Make a machine a new standby of the leader, and start it."""
        node, leader = self.nodes[number], self.nodes[self._leader]
        shutil.rmtree(node.data, ignore_errors=True)
        node.binaries.give(node.folder)
        where = ("--dbname=" + self._upstream(number, leader), f"--pgdata={node.data}")
        node.binaries.run("pg_basebackup", *where, "--checkpoint=fast", "--no-sync")
        node.configure()
        self._follow_from_its_start(number)

    def _follow_from_its_start(self, number: int) -> None:
        node = self.nodes[number]
        (node.data / "standby.signal").touch()
        self._write_upstream(number, self._leader)
        node.start()

    def _upstream(self, number: int, leader: Server) -> str:
        return (
            f"host={leader.host} port={leader.port} user=postgres "
            f"application_name=n{number} connect_timeout=2"
        )

    def _write_upstream(self, number: int, leader: int | None) -> None:
        line = "" if leader is None else self._upstream(number, self.nodes[leader])
        with (self.nodes[number].data / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = '{line}'\n")

    def _follow(self, number: int, leader: int | None) -> None:
        """Let a running standby take records of this machine, or of none; waits for the latter."""
        node = self.nodes[number]
        self._write_upstream(number, leader)
        node.reload()
        if leader is None:
            followed = "SELECT 1 FROM pg_stat_wal_receiver"
            trees.until(lambda: not node.execute(followed), "it still follows")

    def _received(self, number: int) -> int:
        """How far a standby is that nobody sends anything any more.

        One that was started again has received nothing in this life, and has records all the same:
        when it waits for more, it has replayed all that is on its disk.
        """
        node = self.nodes[number]
        waits = "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'startup' AND wait_event IN "
        events = "('RecoveryWalStream', 'RecoveryRetrieveRetryInterval')"
        trees.until(lambda: node.execute(waits + events), "a standby still replays")
        ((replayed,),) = node.execute(
            "SELECT pg_wal_lsn_diff(greatest(pg_last_wal_replay_lsn(),"
            " coalesce(pg_last_wal_receive_lsn(), '0/0')), '0/0')::int8"
        )
        return int(replayed)

    @staticmethod
    def _is_standby(node: Server) -> bool:
        try:
            return bool(node.execute("SELECT pg_is_in_recovery()")[0][0])
        except psycopg.Error:
            return False

    def _wait_for_standbys(self, count: int) -> None:
        query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        leader = self.nodes[self._leader]
        trees.until(lambda: leader.execute(query)[0][0] >= count, "standbys do not follow")


@contextmanager
def quorum(
    folder: Path, settings: Mapping[str, str] | None = None, network: Network | None = None
) -> Iterator[Quorum]:
    """Three machines that run until the end of the block, each on its own disk and address."""
    machines = Quorum(folder, settings, network)
    try:
        machines.create()
        yield machines
    finally:
        for node in machines.nodes:
            node.__exit__()
