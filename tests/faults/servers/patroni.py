"""PostgreSQL on three machines with Patroni, which promotes by itself, and etcd, where it votes.

Patroni runs with ``synchronous_mode`` and ``synchronous_mode_strict``. Its lease cannot be shorter
than 20 s: so long nobody leads after a machine is gone. When PostgreSQL alone dies it knows sooner.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from tests.faults.servers import trees
from tests.faults.servers.machines import Network
from tests.faults.servers.postgres_quorum import DATABASE, EVERYBODY, SETTINGS, PostgresMachines
from tests.services.postgres_binaries import Binaries, find
from tests.services.postgres_server import template
from tests.services.process import ServiceFailed, direct, free_ports, started, tail

LEASE = 20
"""Seconds; Patroni takes no shorter one."""

_PARAMETERS = {
    **SETTINGS,
    "shared_buffers": "16MB",
    "dynamic_shared_memory_type": "mmap",
    "log_min_messages": "warning",
}


def settings(
    name: str, host: str, ports: tuple[int, int], folder: Path, votes: str
) -> dict[str, Any]:
    """The settings of a machine; ``ports`` are PostgreSQL's and Patroni's, ``votes`` is etcd.

    They are written as JSON, which is YAML.
    """
    postgres, rest = (f"{host}:{port}" for port in ports)
    cluster = {
        "ttl": LEASE,
        "loop_wait": 1,
        "retry_timeout": 3,
        "synchronous_mode": True,
        "synchronous_mode_strict": True,
        "primary_start_timeout": 0,
        "postgresql": {"use_pg_rewind": True, "parameters": _PARAMETERS},
    }
    return {
        "scope": "faults",
        "name": name,
        "restapi": {"listen": rest, "connect_address": rest},
        "etcd3": {"host": votes},
        "bootstrap": {"dcs": cluster},
        "postgresql": {
            "listen": postgres,
            "connect_address": postgres,
            "data_dir": str(folder / "data"),
            "pgpass": str(folder / "pgpass"),
            "authentication": {
                who: {"username": "postgres"} for who in ("superuser", "replication", "rewind")
            },
            "parameters": {"unix_socket_directories": str(folder)},
            "pg_hba": list(EVERYBODY),
            # A machine that cannot be wound back is copied anew, at once.
            "basebackup": [{"checkpoint": "fast"}],
            "remove_data_directory_on_diverged_timelines": True,
            "remove_data_directory_on_rewind_failure": True,
        },
        "watchdog": {"mode": "off"},
    }


_WATCH = (
    'read _; kill -9 "$@"; for one in $FOLDERS; do kill -QUIT $(head -1 $one/postmaster.pid); done'
)


class _Node:
    def __init__(self, number: int, folder: Path, host: str, prefix: Sequence[str]) -> None:
        self.name = f"n{number}"
        self.host = host
        self.prefix = prefix
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "log"
        self.port, self.rest = free_ports(2)
        self.patroni: subprocess.Popen[bytes] | None = None

    def roots(self) -> list[int]:
        """Patroni, and PostgreSQL's first process, which is not Patroni's child."""
        found = [] if self.patroni is None else [self.patroni.pid]
        try:
            pid = int((self.data / "postmaster.pid").read_text().splitlines()[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            return found
        # The file of a server that was killed may name a number that is another program's now.
        return [*found, pid] if os.fsencode(self.data) in command else found

    def ask(self, path: str) -> tuple[int, dict[str, Any]]:
        """The status and the answer of Patroni; (0, {}) without one."""
        try:
            with direct.open(f"http://{self.host}:{self.rest}/{path}", timeout=2) as answer:
                return answer.status, dict(json.loads(answer.read() or b"{}"))
        except HTTPError as error:
            return error.code, {}
        except (URLError, OSError, ValueError):
            return 0, {}


class PatroniCluster(PostgresMachines):
    name = "PostgreSQL, Patroni"

    def __init__(self, folder: Path, network: Network | None = None) -> None:
        super().__init__()
        self.binaries: Binaries = find()
        self._folder = folder
        self._etcd: subprocess.Popen[bytes] | None = None
        self._votes, self._peers = free_ports(2)
        self._gate = network.gate if network else "127.0.0.1"
        hosts = network.hosts if network else ["127.0.0.1"] * self.size
        prefixes: list[list[str]] = network.prefixes if network else [[]] * self.size
        for number in range(self.size):
            place = folder / f"n{number}"
            place.mkdir(parents=True)
            self.nodes.append(_Node(number, place, hosts[number], prefixes[number]))
        self._watches: list[subprocess.Popen[bytes]] = []

    def create(self) -> None:
        """Start etcd and all machines, and make the database."""
        self._start_etcd()
        for node in self.nodes:
            self._configure(node)
        self.mend()
        with self.connection() as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}".encode())

    def close(self) -> None:
        for watch in self._watches:
            watch.kill()
            watch.communicate()
        self.kill()
        if self._etcd is not None:
            trees.kill([self._etcd.pid])
            self._etcd.wait()

    def leader(self, old: int | None = None) -> int:
        def leading() -> list[int]:
            others = [number for number in range(self.size) if number != old]
            return [number for number in others if self.nodes[number].ask("primary")[0] == 200]

        return trees.until(leading, "Patroni: nobody leads", 90.0)[0]

    def kill(self, *numbers: int) -> None:
        chosen = [self.nodes[number] for number in numbers or range(self.size)]
        trees.kill([pid for node in chosen for pid in node.roots()])
        for node in chosen:
            if node.patroni is not None:
                node.patroni.wait()
                node.patroni = None

    def kill_server(self, number: int) -> None:
        """kill -9 PostgreSQL alone; its Patroni notices."""
        node = self.nodes[number]
        own = node.patroni.pid if node.patroni else 0
        trees.kill([pid for pid in node.roots() if pid != own])

    def start(self, *numbers: int) -> None:
        for number in numbers:
            self._start(self.nodes[number])

    def pause(self, number: int) -> None:
        trees.send(trees.tree(self.nodes[number].roots()), signal.SIGSTOP)

    def resume(self, number: int) -> None:
        trees.send(trees.tree(self.nodes[number].roots()), signal.SIGCONT)

    def processes(self) -> list[int]:
        return trees.tree([pid for node in self.nodes for pid in node.roots()])

    def fail_over(self, old: int) -> None:
        """Wait until Patroni has promoted another machine."""
        self.leader(old)

    def mend(self) -> None:
        """Wait until all machines work, and the leader has a standby that it waits for."""
        for node in self.nodes:
            if node.patroni is None:
                self._start(node)
        try:
            trees.until(self._whole, "Patroni: not whole", 90.0)
        except ServiceFailed as error:
            tails = "\n".join(f"{node.name}: {tail(node.log)}" for node in self.nodes)
            raise ServiceFailed(f"{error}; {tails}") from None

    def _start_etcd(self) -> None:
        binary = _program("etcd")
        here, peers = f"http://{self._gate}:{self._votes}", f"http://127.0.0.1:{self._peers}"
        line = [
            *(binary, "--name", "votes", "--data-dir", str(self._folder / "etcd")),
            *("--listen-client-urls", here, "--advertise-client-urls", here),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", f"votes={peers}"),
        ]
        self._etcd = started(line, self._folder / "etcd.log")
        self._watch(self._etcd.pid)

    def _configure(self, node: _Node) -> None:
        votes = f"{self._gate}:{self._votes}"
        here = settings(node.name, node.host, (node.port, node.rest), node.folder, votes)
        here["postgresql"]["bin_dir"] = str(self.binaries.folder)
        (node.folder / "patroni.yml").write_text(json.dumps(here))
        # Copies of one folder are one cluster: whichever leads first, the others follow it.
        shutil.copytree(template(self.binaries), node.data, symlinks=True)
        self.binaries.give(node.folder)

    def _start(self, node: _Node) -> None:
        configured = str(node.folder / "patroni.yml")
        line = [*node.prefix, *self._as_user(), sys.executable, "-m", "patroni", configured]
        home = {**os.environ, "HOME": str(node.folder)}
        node.patroni = started(line, node.log, cwd="/", env=home)
        self._watch(node.patroni.pid, node.data)

    def _as_user(self) -> list[str]:
        """As root: drop to the user of PostgreSQL, who may still read this Python's folders."""
        if self.binaries.user is None:
            return []
        entry = pwd.getpwnam(self.binaries.user)
        return [
            *("setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"),
            *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
        ]

    def _watch(self, pid: int, *folders: Path) -> None:
        """Nothing outlives these tests, however they end."""
        self._watches.append(
            subprocess.Popen(
                ["sh", "-c", _WATCH, "watch", str(pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "FOLDERS": " ".join(map(str, folders))},
            )
        )

    def _whole(self) -> bool:
        # What etcd tells of machines may be older than their death, so each is asked itself.
        if any(node.ask("health")[0] != 200 for node in self.nodes):
            return False
        if sum(node.ask("primary")[0] == 200 for node in self.nodes) != 1:
            return False
        members = self.nodes[0].ask("cluster")[1].get("members", [])
        states = {one["state"] for one in members}
        return (
            len(members) == self.size
            and states <= {"running", "streaming"}
            and "sync_standby" in {one["role"] for one in members}
        )


def _program(name: str) -> str:
    """A program of this Python's environment, or of the PATH. Skips the test without it."""
    own = Path(sysconfig.get_path("scripts")) / name
    found = str(own) if own.is_file() else shutil.which(name)
    if found is None:
        trees.missing(f"no {name} here: install the extra `dev`, or put it on the PATH")
    return found


@contextmanager
def patroni(folder: Path, network: Network | None = None) -> Iterator[PatroniCluster]:
    """Three machines with Patroni that run until the end of the block."""
    try:
        __import__("patroni")
    except ImportError:
        trees.missing("no Patroni here: install the extra `dev`")
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        trees.missing("as root, Patroni needs setpriv (util-linux) to run as another user")
    machines = PatroniCluster(folder, network)
    try:
        machines.create()
        yield machines
    finally:
        machines.close()
