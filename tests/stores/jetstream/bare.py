"""Writes the messages of a JetStream store one by one, without the store's write side.

So a test can put what a store should never write, and read it by the read side alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NoAnswerError

from eventctx.log.record import GENESIS, Draft, chain_digest
from eventctx.stores.jetstream.layout import (
    DeletionLedger,
    ErasedBody,
    Names,
    Registered,
    SessionOrigin,
    StoredBody,
    Unit,
    WireMessage,
    encode,
    split_body,
    split_unit,
    to_stored,
)
from eventctx.stores.jetstream.retrying_reads import CollectingClient
from tests.services.nats_server import Cluster


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


class Bare:
    """The streams of one store, and the ends of the sessions that were written."""

    def __init__(self, client: CollectingClient, names: Names) -> None:
        self.client = client
        self.names = names
        self.ends: dict[str, tuple[int, bytes]] = {}
        self.most = 2**20

    async def create(self, replicas: int = 3) -> None:
        """Create the streams of the shards."""
        for shard in range(self.names.shards):
            config = {
                "name": self.names.stream(shard),
                "subjects": [f"{self.names.prefix}.{shard}.>"],
                "num_replicas": replicas,
                "storage": "file",
                "retention": "limits",
                "allow_direct": True,
                "allow_atomic": True,
                "republish": {
                    "src": f"{self.names.prefix}.{shard}.r.>",
                    "dest": f"{self.names.prefix}.live.{shard}.>",
                    "headers_only": True,
                },
            }
            async with asyncio.timeout(60):
                while True:
                    try:
                        await self.api(f"STREAM.CREATE.{config['name']}", config, 5)
                        break
                    except NoAnswerError:
                        # Servers that are about to elect another leader drop what they are asked;
                        # to make a stream again that is there already changes nothing.
                        continue

    async def api(
        self, operation: str, request: Mapping[str, Any], seconds: float = 60
    ) -> dict[str, Any]:
        """Ask the JetStream API."""
        payload = json.dumps(request).encode()
        answer = await self.client.request(f"$JS.API.{operation}", payload, timeout=seconds)
        found: dict[str, Any] = json.loads(answer.data)
        assert "error" not in found, found
        return found

    async def put(self, subject: str, message: WireMessage) -> int:
        """Store one message; its sequence."""
        headers = dict(message.headers) or None
        async with asyncio.timeout(60):
            while True:
                try:
                    answer = await self.client.request(subject, message.payload, 60, False, headers)
                    break
                except NoRespondersError:  # the stream's first leader is about to be elected
                    await asyncio.sleep(0.02)
        found = json.loads(answer.data)
        assert "error" not in found, found
        return int(found["seq"])

    async def append(
        self,
        session: str,
        drafts: Sequence[Draft],
        *,
        after: tuple[int, bytes] | None = None,
        later: list[WireMessage] | None = None,
    ) -> int:
        """Append one unit after ``after`` (the session's end by default); its sequence.

        Its bodies are put into ``later`` instead, if that is given.
        """
        position, digest = after or self.ends.get(session, (-1, GENESIS))
        origin = None
        if session not in self.ends:
            origin = SessionOrigin(drafts[0].time)
            shard = self.names.shard(session)
            entry = Registered(session, origin.created)
            await self.put(self.names.of_shard("n", shard), WireMessage({}, encode(entry)))
        first, records, bodies = position + 1, [], []
        for draft in drafts:
            position += 1
            digest = chain_digest(digest, position, draft)
            pieces = [split_body(body, self.most) for body in draft.bodies]
            bodies += [piece for one in pieces for piece in one]
            counts = zip(draft.bodies, pieces, strict=True)
            places = [StoredBody(body.digest, len(one)) for body, one in counts]
            records.append(to_stored(draft, digest, places))
        unit = encode(Unit(first, tuple(records), origin))
        sequence = 0
        for message in split_unit(unit, self.most):
            sequence = await self.put(self.names.of_session("r", session), message)
        if later is not None:
            later += bodies
            bodies = []
        for message in bodies:
            await self.put(self.names.of_session("b", session), message)
        self.ends[session] = (position, digest)
        return sequence

    async def erase(self, session: str, bodies: Sequence[ErasedBody]) -> None:
        """Note erasures; the bodies' messages stay."""
        subject = self.names.of_session("e", session)
        await self.put(subject, WireMessage({}, encode(tuple(bodies))))

    async def remove(self, shard: int, sequence: int) -> None:
        """Delete a message, which the ledger does not know of."""
        await self.api(f"STREAM.MSG.DELETE.{self.names.stream(shard)}", {"seq": sequence})

    async def allow(self, shard: int, total: int) -> None:
        """Enter in the ledger that so many messages may be missing."""
        await self.put(
            self.names.of_shard("d", shard), WireMessage({}, encode(DeletionLedger(total)))
        )
