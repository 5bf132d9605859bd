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
from tests.faults.servers.machines import Network
from tests.services.nats_server import Cluster, NatsMissing, find
from tests.services.process import PortTaken


class JetStream(Cluster):
    name = "JetStream, R3"
    size = 3
    _stores = itertools.count(1)
    prefix = "FAULTS0"

    def fresh(self) -> None:
        self.prefix = f"FAULTS{next(self._stores)}"

    async def open(self, *, patience: float = 60.0, read_only: bool = False) -> EventStore:
        return await open_store(self.url(self.prefix), patience=patience, read_only=read_only)

    @property
    def stream(self) -> str:
        return f"{self.prefix}_0"

    def settle(self) -> None:
        os.sync()

    def leader(self, stream: str = "") -> int:
        return super().leader(stream or self.stream)

    def start(self, *numbers: int, ready: bool = False) -> None:
        super().start(*numbers, ready=ready)

    def processes(self) -> list[int]:
        return trees.tree([one.process.pid for one in self.nodes if one.process])

    def fail_over(self, old: int) -> None:
        """Return: the servers that are left elect a leader, and clients wait for it by themselves.

        A server that is only away takes itself for the leader for a while, and says so.
        """

    async def let_lead(self, number: int, seconds: float = 20.0) -> bool:
        """Ask the cluster to let this machine lead; whether it came to that in time."""
        import nats

        client = await nats.connect(self.servers)
        wanted = json.dumps({"placement": {"preferred": self.nodes[number].name}}).encode()
        until = time.monotonic() + seconds
        try:
            while self.leader() != number and time.monotonic() < until:
                subject = f"$JS.API.STREAM.LEADER.STEPDOWN.{self.stream}"
                await client.request(subject, wanted, timeout=5)
                await asyncio.sleep(0.5)
        finally:
            await client.close()
        return self.leader() == number

    def mend(self) -> None:
        self.start(ready=True)
        self.leader()


@contextmanager
def jetstream(
    folder: Path, network: Network | None = None, *, sync: str | None = "always"
) -> Iterator[JetStream]:
    try:
        binary = find()
    except NatsMissing as missing:
        trees.missing(str(missing))
    settings: dict[str, Any] = {"binary": binary, "sync": sync}
    if network is not None:
        settings |= {"hosts": network.hosts, "prefixes": network.prefixes}
    for attempt in range(5):
        machines = JetStream(folder / f"nats{attempt}", **settings)
        try:
            machines.start(ready=True)
        except PortTaken:
            machines.kill()
            continue
        try:
            yield machines
        finally:
            machines.kill()
        return
    raise PortTaken("in each of five attempts")
