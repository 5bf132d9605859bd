"""NATS JetStream on three machines: every stream has three replicas, which elect their leader."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eventctx.log.store import EventStore
from eventctx.stores.location import open_store
from tests.faults.servers import trees
from tests.faults.servers.networks import Network
from tests.services.nats_server import Cluster, NatsMissing, find
from tests.services.process import PortTaken


class JetStream:
    """``Machines`` with NATS JetStream."""

    name = "JetStream, R3"
    size = 3

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._names = itertools.count(1)
        self.prefix = ""
        self.fresh()

    def fresh(self) -> None:
        self.prefix = f"FAULTS{next(self._names)}"

    async def open(self, *, patience: float = 60.0, read_only: bool = False) -> EventStore:
        return await open_store(
            self.cluster.url(self.prefix), patience=patience, read_only=read_only
        )

    @property
    def stream(self) -> str:
        """The stream of the only shard."""
        return f"{self.prefix}_0"

    def settle(self) -> None:
        os.sync()

    def leader(self) -> int:
        return self.cluster.leader(self.stream)

    def kill(self, *numbers: int) -> None:
        self.cluster.kill(*numbers)

    def start(self, *numbers: int) -> None:
        self.cluster.start(*numbers, ready=False)

    def pause(self, number: int) -> None:
        self.cluster.pause(number)

    def resume(self, number: int) -> None:
        self.cluster.resume(number)

    def processes(self) -> list[int]:
        return trees.tree([one.process.pid for one in self.cluster.nodes if one.process])

    def fail_over(self, old: int) -> None:
        """Return: the servers that are left elect a leader, and clients wait for it by themselves.

        A server that is only away takes itself for the leader for a while, and says so.
        """

    async def let_lead(self, number: int, seconds: float = 20.0) -> bool:
        """Ask the cluster to let this machine lead; whether it came to that in time."""
        import nats

        client = await nats.connect(self.cluster.servers)
        name = self.cluster.nodes[number].name
        wanted = json.dumps({"placement": {"preferred": name}}).encode()
        until = time.monotonic() + seconds
        try:
            while (led := self.leader() == number) is False and time.monotonic() < until:
                subject = f"$JS.API.STREAM.LEADER.STEPDOWN.{self.stream}"
                await client.request(subject, wanted, timeout=5)
                await asyncio.sleep(0.5)
        finally:
            await client.close()
        return led

    def mend(self) -> None:
        self.cluster.start()
        self.leader()


@contextmanager
def jetstream(
    folder: Path, network: Network | None = None, *, sync: str | None = "always"
) -> Iterator[JetStream]:
    """Three servers that run until the end of the block."""
    try:
        binary = find()
    except NatsMissing as missing:
        trees.missing(str(missing))
    for attempt in itertools.count():
        settings: dict[str, Any] = {"binary": binary, "sync": sync}
        if network is not None:
            settings |= {"hosts": network.hosts, "prefixes": network.prefixes}
        cluster = Cluster(folder / f"nats{attempt}", **settings)
        try:
            try:
                cluster.start()
            except PortTaken:
                if attempt == 4:
                    raise
                continue
            yield JetStream(cluster)
            return
        finally:
            cluster.kill()
