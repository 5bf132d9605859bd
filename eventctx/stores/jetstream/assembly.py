"""The parts of a store, made once its servers were found to be safe."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nats.errors import Error as NatsError

from eventctx.errors import StoreUnsafe, StreamNotFound
from eventctx.log.record import Record
from eventctx.log.store import StoreDescription
from eventctx.stores.jetstream.append import NOTHING, Tip
from eventctx.stores.jetstream.batch import outgoing, send
from eventctx.stores.jetstream.creating import find_or_make
from eventctx.stores.jetstream.destroying import Destroyer
from eventctx.stores.jetstream.early_bodies import EarlyBodies
from eventctx.stores.jetstream.erasing import Eraser
from eventctx.stores.jetstream.families import Families
from eventctx.stores.jetstream.reads.asking import RetryingReads
from eventctx.stores.jetstream.reads.caches import Caches
from eventctx.stores.jetstream.reads.following import Subscriptions
from eventctx.stores.jetstream.reads.reading import SessionReader
from eventctx.stores.jetstream.reads.registry import Registry
from eventctx.stores.jetstream.reads.whole import GlobalScan
from eventctx.stores.jetstream.requirements import Server, Servers
from eventctx.stores.jetstream.wire.connection import DOUBTS, ApiError, ServerLink, Tries
from eventctx.stores.jetstream.wire.layout import BATCH_MESSAGES, Meta
from eventctx.stores.jetstream.writer import JetStreamWriter

WATCH_SECONDS: Final = 30.0
"""Seconds between two looks at the servers' settings."""


class LeadersLog:
    """The reads that a writer needs, checked."""

    def __init__(self, reader: SessionReader) -> None:
        self._reader = reader

    async def tip(self, session: str) -> Tip:
        """See ``append.AppendLog``."""
        head = await self._reader.heads.head(session)
        if head is None:
            return NOTHING
        return Tip(head.position, head.digest, head.event, head.sequence)

    async def records(self, session: str, first: int, last: int) -> list[Record]:
        """See ``append.AppendLog``."""
        return await self._reader.records(session, first, last)

    async def current(self, session: str) -> bool:
        """See ``append.AppendLog``."""
        return await self._reader.heads.current(self._reader.names.shard(session))


@dataclass(slots=True)
class StoreParts:
    """What a store consists of; all for use in the store's loop, but for ``writer.append``."""

    link: ServerLink
    meta: Meta
    checked: tuple[Server, ...]
    reader: SessionReader
    whole: GlobalScan
    registry: Registry
    caches: Caches
    writer: JetStreamWriter
    eraser: Eraser
    families: Families
    destroyer: Destroyer
    following: Subscriptions
    unsafe: StoreUnsafe | None = None
    """Why nothing may be written now: a server came back with other settings."""

    async def idle(self) -> None:
        """Wait until all that was appended is stored."""
        await self.writer.idle()

    async def describe(self) -> StoreDescription:
        """See ``EventStore.describe``."""
        versions = sorted({server.version for server in self.checked})
        facts = {
            "servers": ", ".join(server.name for server in self.checked),
            "replicas": str(await self._replicas()),
            "sync_interval": "always",
            "shards": str(self.meta.shards),
            "max_payload": f"{self.link.client.max_payload:,} bytes",
        }
        server = f"nats-server {', '.join(versions)}"
        place = self.link.address.place
        return StoreDescription("jetstream", place, server, "loss of a machine", facts)

    async def _replicas(self) -> int:
        name = self.link.names.stream(0)
        found = await self.link.request(f"$JS.API.STREAM.INFO.{name}")
        return int(found["config"]["num_replicas"])


async def assemble(link: ServerLink, *, create: bool, read_only: bool) -> StoreParts:
    """Connect, check the servers, find or make the store; see ``JetStreamStore.open``."""
    await link.connect()
    servers = Servers(link)
    checked = await servers.check()
    meta = await find_or_make(link, create=create and not read_only)
    asking = RetryingReads(link.client, link.names, link.patience)
    reader = SessionReader(asking)
    registry = Registry(reader)
    caches = Caches(link, reader)

    async def drop_snapshots(sessions: Sequence[str]) -> int:
        heirs = list(sessions)
        for session in heirs:  # grows while it is walked
            try:
                heirs += [one for one in await registry.forks(session) if one not in heirs]
            except StreamNotFound:
                continue
        return await caches.drop(heirs)

    destroyer = Destroyer(link, asking, servers, drop_snapshots)
    early = EarlyBodies(link, destroyer)
    log = LeadersLog(reader)
    writer = JetStreamWriter(link, log, early)
    eraser = Eraser(link, log, reader, writer, destroyer)
    families = Families(link, reader, writer, destroyer, registry)
    whole = GlobalScan(reader, None if read_only else Pusher(link).fill)
    parts = StoreParts(
        link=link,
        meta=meta,
        checked=checked,
        reader=reader,
        whole=whole,
        registry=registry,
        caches=caches,
        writer=writer,
        eraser=eraser,
        families=families,
        destroyer=destroyer,
        following=Subscriptions(link, whole),
    )
    if not read_only:
        link.keep(_finish(destroyer, meta.shards))
        link.keep(_watch(parts, servers))
    return parts


async def _watch(parts: StoreParts, servers: Servers) -> None:
    """Look now and then at the servers' settings: one that was down was not checked yet."""
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            parts.unsafe = await servers.changed()
        except (OSError, TimeoutError, NatsError):
            continue  # nobody tells now, and what was found before still holds


async def _finish(destroyer: Destroyer, shards: int) -> None:
    """Finish what another process left when it ended in the middle of an erasure."""
    for shard in range(shards):
        await destroyer.carry_out(shard)


class Pusher:
    """Lets the sequences of a shard rise to those of others, see ``whole``."""

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        self._lock = asyncio.Lock()

    async def fill(self, shard: int, sequence: int) -> None:
        """Store fillers until the last message of a shard is at ``sequence`` or behind it."""
        subject = self._link.names.of_shard("g", shard)
        tries = Tries(self._link, "filling")
        async with self._lock:
            status = await self._link.request(
                f"$JS.API.STREAM.INFO.{self._link.names.stream(shard)}"
            )
            last = int(status["state"]["last_seq"])
            while last < sequence:
                count = min(sequence - last, BATCH_MESSAGES)
                try:
                    first = await send(
                        self._link, [outgoing(subject, {}, b"") for _ in range(count)]
                    )
                    last = first + count - 1
                except (ApiError, *DOUBTS) as error:
                    if isinstance(error, ApiError) and not error.passing:
                        raise self._link.translated(error, "filling") from error
                    await tries.after(error)
