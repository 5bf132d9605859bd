"""What the stores on servers cost, on servers that the benchmark starts itself, on this machine.

Each is measured in turns with a file of SQLite, whose appends wait for the same disk. The servers'
files lie in the temporary folder. Processor time is that of the agent's process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Final

import eventctx
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import Place, Samples, tail
from tests.benchmarks.workload import Message, message, messages
from tests.services import nats_server
from tests.services.postgres_binaries import PostgresMissing
from tests.services.postgres_server import Server

SESSIONS: Final = 100
"""Sessions that append at once."""

_WAL: Final = {"max_wal_size": "2GB", "min_wal_size": "256MB"}
SETTINGS: Final = {"shared_buffers": "256MB", "max_connections": "300", **_WAL}
"""As an installation has them; tests start their servers small. All else is the default."""

SEGMENT: Final = 16
"""MiB of a segment of the write-ahead log, as PostgreSQL's default has it."""

STANDBYS: Final = ("s1", "s2")
QUORUM: Final = f"ANY 1 ({', '.join(STANDBYS)})"


async def measure(place: Place) -> list[Row]:
    started: dict[str, Callable[[], AbstractContextManager[str]]] = {
        "postgresql": _postgres_url,
        f"postgresql, {QUORUM}": _quorum_url,
        "jetstream, three replicas": _jetstream_url,
    }
    rows: list[Row] = []
    for name, start in started.items():
        try:
            with start() as url:
                rows += await _measured(place, name, url)
        except (PostgresMissing, nats_server.NatsMissing) as error:
            rows.append(missing(name, "a store on it", str(error)))
    return rows


async def _measured(place: Place, figure: str, url: str) -> list[Row]:
    samples, each = Samples(), place.count(50, 10)
    urls = {"file": str(place.path("file.db")), "server": url}
    async with eventctx.open(urls["file"]) as file, eventctx.open(url) as server:
        engines = {"file": file, "server": server}
        contexts = {
            name: await engine.session("one", max_tokens=10**9) for name, engine in engines.items()
        }
        for number in range(place.count(1000, 200)):
            for name, context in contexts.items():
                await samples.time(name, partial(context.add_message, message(number)))
        for number in range(place.count(3, 2)):
            for name, engine in engines.items():
                names = [f"{number}-{one}" for one in range(SESSIONS)]
                opened = [await engine.session(one, max_tokens=10**9) for one in names]
                work = [messages(each, each * one) for one in range(SESSIONS)]
                with samples.step(f"{name}, many"):
                    await asyncio.gather(*map(_added, opened, work))
    count = SESSIONS * each
    many, file_many = "server, many", "file, many"
    row = partial(Row, figure=figure, against="a file of SQLite")
    return [
        row(
            name="ctx.add_message",
            value=samples.micro("server"),
            unit="µs",
            floor=samples.micro("file"),
            cpu=samples.cpu("server"),
            floor_cpu=samples.cpu("file"),
            note=tail(samples, "server"),
        ),
        row(
            name=f"{SESSIONS} sessions, ctx.add_message",
            value=count / samples.median(many),
            unit="messages/s",
            floor=count / samples.median(file_many),
            cpu=samples.cpu(many, count),
            floor_cpu=samples.cpu(file_many, count),
        ),
    ]


async def _added(context: eventctx.Context, work: Sequence[Message]) -> None:
    for one in work:
        await context.add_message(one)


# -- servers ---------------------------------------------------------------------------------------


@contextmanager
def _postgres() -> Iterator[Server]:
    server = Server(settings=SETTINGS)
    server.create()
    server.binaries.run("pg_resetwal", f"--wal-segsize={SEGMENT}", f"--pgdata={server.data}")
    with server:
        yield server


@contextmanager
def _postgres_url() -> Iterator[str]:
    with _postgres() as server:
        yield server.url(server.new_database())


@contextmanager
def _quorum_url() -> Iterator[str]:
    """A primary whose commits wait for one of two standbys."""
    with ExitStack() as stack:
        primary = stack.enter_context(_postgres())
        for name in STANDBYS:
            stack.enter_context(primary.standby(name))
        primary.configure(synchronous_standby_names=QUORUM)
        primary.reload()
        # A commit does not wait before the setting has been read.
        while primary.execute("SHOW synchronous_standby_names") != [(QUORUM,)]:
            pass
        yield primary.url(primary.new_database(), durability="replicated")


@contextmanager
def _jetstream_url() -> Iterator[str]:
    """Three servers that sync every message to the disk."""
    with nats_server.running() as cluster:
        yield cluster.url("BENCH")
