"""Opens a store: finds or makes its streams, checks them, and puts its parts together.

The streams are made once and checked at every opening. Nothing is written before the servers were
found to be safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import msgspec
from nats.errors import Error as NatsError

from eventctx.errors import (
    InvalidSetting,
    NotAStore,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
    StoreUnsafe,
    StreamNotFound,
)
from eventctx.log.record import Record
from eventctx.log.store import StoreDescription
from eventctx.stores.jetstream.append import NOTHING, EarlyBodies, Tip
from eventctx.stores.jetstream.connection import (
    DOUBTS,
    EXPECTED,
    STREAM_NOT_FOUND,
    ApiError,
    ServerLink,
    Tries,
    outgoing,
    send,
)
from eventctx.stores.jetstream.destroying import Destroyer
from eventctx.stores.jetstream.erasing import Eraser
from eventctx.stores.jetstream.families import Families
from eventctx.stores.jetstream.global_scan import GlobalScan, Subscriptions
from eventctx.stores.jetstream.layout import BATCH_MESSAGES, LAYOUT, Meta, Names, decode_meta
from eventctx.stores.jetstream.reading import SessionReader
from eventctx.stores.jetstream.registry import Caches, Registry
from eventctx.stores.jetstream.requirements import REPLICAS, Server, Servers, check_stream
from eventctx.stores.jetstream.retrying_reads import RetryingReads
from eventctx.stores.jetstream.writer import JetStreamWriter

_NAME_IN_USE: Final = 10058
_TOO_FEW_SERVERS: Final = frozenset((10023, 10074))
_NO_PEERS: Final = 10005
"""The servers are enough, as was checked before, and one of them is not there yet."""

_ALL: Final[Mapping[str, Any]] = {
    "storage": "file",
    "num_replicas": REPLICAS,
    "retention": "limits",
    "discard": "new",
    "max_age": 0,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_msgs_per_subject": -1,
    "allow_direct": True,
    "allow_atomic": True,
    # With a roll-up, every client that may append could remove messages.
    "allow_rollup_hdrs": False,
    "deny_delete": False,
}


async def find_or_make(link: ServerLink, *, create: bool) -> Meta:
    """The store of the link's address, whose number of shards the link then knows.

    Raises NotAStore, StoreTooNew, StoreUnsafe, StoreReadOnly (it would have to be made),
    StoreUnavailable, InvalidSetting.
    """
    address, names = link.address, link.names
    configured = await _stream(link, names.meta)
    if configured is None:
        if not create:
            raise StoreUnavailable(
                f"{address.place}: expected a store of the name {address.name!r}, found no stream "
                f"{names.meta}; open it with create=True to make one"
            )
        configured = await _make(link, names.meta, {"subjects": [f"{names.prefix}.meta.>"]})
    check_stream(address.place, configured)
    meta = await _meta(link)
    if meta is None:
        if not create:
            raise StoreReadOnly(f"{address.place}: the store was never finished; open it to write")
        meta = await _make_meta(link)
    if address.shards is not None and address.shards != meta.shards:
        raise InvalidSetting(
            f"{address.place}: expected shards={meta.shards}, as the store was made, found "
            f"shards={address.shards}; copy the sessions to a new store to change it"
        )
    link.names = Names(address.name, meta.shards)
    # At once: a server takes its time to make a stream, whatever else it makes meanwhile.
    wanted = _stream_settings(link.names)
    found = await asyncio.gather(
        *(_check_or_make(link, name, settings, create) for name, settings in wanted),
        return_exceptions=True,
    )
    for one in found:
        if one is not None:
            raise one
    return meta


async def _check_or_make(
    link: ServerLink, name: str, settings: Mapping[str, Any], create: bool
) -> None:
    """Find a stream or make it. Raises what ``find_or_make`` raises."""
    found = await _stream(link, name)
    if found is None:
        if not create:
            raise StoreReadOnly(
                f"{link.address.place}: expected the stream {name}, found none; it was removed, or "
                "the store was never finished"
            )
        found = await _make(link, name, settings)
    check_stream(link.address.place, found)


def _stream_settings(names: Names) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = [
        (names.caches, {"subjects": [f"{names.prefix}.kv.>"]})
    ]
    for shard in range(names.shards):
        records = f"{names.prefix}.{shard}.r.>"
        live = {
            "src": records,
            "dest": f"{names.prefix}.live.{shard}.>",
            "headers_only": True,
        }
        settings = {"subjects": [f"{names.prefix}.{shard}.>"], "republish": live}
        found.append((names.stream(shard), settings))
    return found


async def _stream(link: ServerLink, name: str) -> dict[str, Any] | None:
    """The configuration of a stream; None if there is no such stream."""
    try:
        found = await link.request(f"$JS.API.STREAM.INFO.{name}")
    except ApiError as error:
        if error.number == STREAM_NOT_FOUND:
            return None
        raise link.translate(error, name) from error
    return dict(found["config"])


async def _make(link: ServerLink, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    tries = Tries(link, name)
    while True:
        try:
            made = await link.request(
                f"$JS.API.STREAM.CREATE.{name}", {"name": name, **_ALL, **settings}
            )
            return dict(made["config"])
        except ApiError as error:
            if error.number == _NAME_IN_USE:  # another process made it in the meantime
                found = await _stream(link, name)
                if found is not None:
                    return found
            if error.number in _TOO_FEW_SERVERS:
                raise StoreUnsafe(
                    f"{link.address.place}: expected a cluster of {REPLICAS} or more servers with "
                    f"JetStream for the stream {name}, found: {error.description}"
                ) from error
            if error.number != _NO_PEERS:
                raise link.translate(error, name) from error
            await tries.after(error)


async def _meta(link: ServerLink) -> Meta | None:
    reads = RetryingReads(link.client, link.names, link.patience)
    last = await reads.last_of(link.names.meta, link.names.meta_subject)
    if last is None:
        return None
    place = link.address.place
    try:
        meta = decode_meta(last.data)
    except msgspec.MsgspecError as error:
        raise NotAStore(
            f"{place}: expected a store of eventctx in the stream {link.names.meta}, found "
            "something else; give the store another name (?name=…)"
        ) from error
    if meta.layout > LAYOUT:
        raise StoreTooNew(
            f"{place}: expected a store of layout {LAYOUT} or older, found {meta.layout}: update "
            "eventctx"
        )
    return meta


async def _make_meta(link: ServerLink) -> Meta:
    """Write the store's first message, unless another process was faster."""
    meta = Meta(LAYOUT, uuid4().hex, link.address.shards or 1)
    message = outgoing(link.names.meta_subject, {EXPECTED: "0"}, msgspec.json.encode(meta))
    tries = Tries(link, link.names.meta)
    while True:
        try:
            await send(link, [message])
            return meta
        except ApiError as error:
            if error.conflict:
                found = await _meta(link)
                if found is not None:
                    return found
            elif not error.passing:
                raise link.translate(error, link.names.meta) from error
            await tries.after(error)
        except DOUBTS as error:
            await tries.after(error)


WATCH_SECONDS: Final = 30.0
"""Seconds between two looks at the servers' settings."""


class LeadersLog:
    """The reads that a writer needs, checked."""

    def __init__(self, reader: SessionReader) -> None:
        self._reader = reader

    async def tip(self, session: str) -> Tip:
        head = await self._reader.heads.head(session)
        if head is None:
            return NOTHING
        return Tip(head.position, head.digest, head.event, head.sequence)

    async def records(self, session: str, first: int, last: int) -> list[Record]:
        return await self._reader.records(session, first, last)

    async def current(self, session: str) -> bool:
        return await self._reader.heads.current(self._reader.names.shard(session))


@dataclass(slots=True)
class StoreParts:
    """The parts of an open store; all for the store's loop, but for ``writer.append``."""

    link: ServerLink
    meta: Meta
    checked: tuple[Server, ...]
    reader: SessionReader
    global_scan: GlobalScan
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
    reads = RetryingReads(link.client, link.names, link.patience)
    reader = SessionReader(reads)
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

    destroyer = Destroyer(link, reads, servers, drop_snapshots)
    early = EarlyBodies(link, destroyer)
    log = LeadersLog(reader)
    writer = JetStreamWriter(link, log, early)
    eraser = Eraser(link, log, reader, writer, destroyer)
    families = Families(link, reader, writer, destroyer, registry)
    global_scan = GlobalScan(reader, None if read_only else Pusher(link).fill)
    parts = StoreParts(
        link=link,
        meta=meta,
        checked=checked,
        reader=reader,
        global_scan=global_scan,
        registry=registry,
        caches=caches,
        writer=writer,
        eraser=eraser,
        families=families,
        destroyer=destroyer,
        following=Subscriptions(link, global_scan),
    )
    if not read_only:
        link.keep(_finish(destroyer, meta.shards))
        link.keep(_watch(parts, servers))
    return parts


async def _watch(parts: StoreParts, servers: Servers) -> None:
    """Check the servers' settings now and then: a server that was down was not checked yet."""
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            parts.unsafe = await servers.changed()
        except (OSError, TimeoutError, NatsError):
            continue  # no answer now; the last finding still holds


async def _finish(destroyer: Destroyer, shards: int) -> None:
    """Finish the erasures that another process began and did not finish."""
    for shard in range(shards):
        await destroyer.carry_out(shard)


class Pusher:
    """Raises the sequences of a shard to those of the others; see ``global_scan``."""

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        self._lock = asyncio.Lock()

    async def fill(self, shard: int, sequence: int) -> None:
        """Store fillers until the last message of a shard is at ``sequence`` or later."""
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
                        raise self._link.translate(error, "filling") from error
                    await tries.after(error)
