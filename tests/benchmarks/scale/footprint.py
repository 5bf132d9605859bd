"""What the recorded sessions take in each store: bytes on disk, and bytes sent to replicas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import nats

import eventctx
from eventctx.log.store import EventStore
from tests.benchmarks.place import bytes_on_disk
from tests.benchmarks.scale.requests import Counts, mean, play_all
from tests.services.nats_server import Cluster
from tests.services.postgres_server import Server

TIMES: Final = 3
"""How often all are played, so that what an empty store takes does not count."""

_SIZES: Final = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint,
       coalesce(sum(pg_indexes_size(c.oid)), 0)::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'eventctx' AND c.relkind = 'r'
"""


class Footprint(msgspec.Struct):
    """Of one store, in bytes: all files of one copy, indexes of that, and the log of changes."""

    store: str
    requests: int
    records: int
    disk: int
    indexes: int = 0
    changes: int = 0
    page_images: int = 0


async def sqlite(folder: Path) -> Footprint:
    """A file, closed."""
    path = folder / "footprint.db"
    async with eventctx.open(path, durability="normal") as engine:
        counts = await _played(engine.store)
    return Footprint("sqlite", counts.requests, counts.records, bytes_on_disk(path))


async def postgres(server: Server) -> Footprint:
    """Tables and indexes, and what the write-ahead log grew by."""
    database = server.new_database()
    async with eventctx.open(server.url(database)) as engine:
        server.execute("CHECKPOINT")
        before = _changes(server)
        counts = await _played(engine.store)
        after = _changes(server)
    ((disk, indexes),) = server.execute(_SIZES, database=database)
    server.drop_database(database)
    changes, images = (int(new - old) for new, old in zip(after, before, strict=True))
    return Footprint(
        "postgresql", counts.requests, counts.records, disk, indexes, changes, images * 8192
    )


def _changes(server: Server) -> Sequence[int]:
    """Bytes of the write-ahead log so far, and whole pages in it."""
    (found,) = server.execute(
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'), wal_fpi FROM pg_stat_wal"
    )
    return found


async def jetstream(cluster: Cluster) -> Footprint:
    """The streams of one replica, as the server counts them."""
    name = "FOOTPRINT"
    async with eventctx.open(cluster.url(name)) as engine:
        counts = await _played(engine.store)
    client = await nats.connect(cluster.servers[0])
    streams = await client.jetstream().streams_info()
    disk = sum(one.state.bytes for one in streams if str(one.config.name).startswith(name))
    await client.close()
    # A leader sends each message to every other replica, as it is.
    return Footprint("jetstream", counts.requests, counts.records, disk, changes=disk)


async def _played(store: EventStore) -> Counts:
    total = Counts("all")
    for number in range(TIMES):
        total.add(mean(await play_all(store, f"played-{number}")))
    return total
