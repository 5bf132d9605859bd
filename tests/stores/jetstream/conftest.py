"""What the tests of the JetStream store share: names, clients, leaders."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from nats.errors import Error as NatsError

from eventctx.stores.jetstream.retrying_reads import CollectingClient
from tests.services.nats_server import Cluster

_numbers = itertools.count()


def fresh_name() -> str:
    return f"T{os.getpid()}_{next(_numbers)}"


@asynccontextmanager
async def connected(servers: str | list[str]) -> AsyncIterator[CollectingClient]:
    """A client that is closed at the end of the block, however that ends."""
    client = CollectingClient()
    await client.connect(servers)
    try:
        yield client
    finally:
        await client.close()


async def make_leader(client: CollectingClient, cluster: Cluster, stream: str, number: int) -> None:
    """Let a server lead a stream that runs and has what the leader has."""
    request = b'{"placement": {"preferred": "%s"}}' % cluster.nodes[number].name.encode()
    async with asyncio.timeout(60):
        while await asyncio.to_thread(cluster.leader, stream) != number:
            with suppress(NatsError):  # there may be no leader just now
                subject = f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}"
                await client.request(subject, request, timeout=2)
            await asyncio.sleep(0.05)
