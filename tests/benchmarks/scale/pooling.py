"""Connections: how many a process holds, what an idle one takes, and what a pooler leaves of them.

PgBouncer is the one on the PATH (Debian's, say), or those that ``EVENTCTX_PGBOUNCER`` names, with
colons between; without one nothing is measured. In transaction mode a client
has a connection of the server only from a transaction's beginning to its end, so what belongs to a
connection is lost: LISTEN, prepared statements (before its release 1.21), SET, session locks.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import urlsplit

import msgspec

import eventctx
from eventctx.errors import EventctxError
from eventctx.log.record import Record
from eventctx.log.store import ANY, NO_STREAM, EventStore, Expected
from eventctx.stores.location import open_store
from tests.benchmarks.scale.load import drafts_of_append
from tests.benchmarks.scale.subjects import resident
from tests.benchmarks.timing import now
from tests.services.postgres_server import Server
from tests.services.process import free_ports

ENVIRONMENT: Final = "EVENTCTX_PGBOUNCER"
POOL: Final = 10
"""Connections of the server that the pooler may use."""

_START_SECONDS: Final = 10.0
_LIVE: Final = 40
_BUSY: Final = 4
_PATIENCE: Final = 3.0
"""Seconds in which a store tries again: what fails here fails for good."""


class Connections(msgspec.Struct):
    """Of one process with an open store: its connections, and bytes of an idle one."""

    store: int
    subscribed: int
    idle_bytes: int


class Pooled(msgspec.Struct):
    """What a store does through a pooler: what went wrong, and seconds to a live record."""

    version: str
    mode: str
    append: str
    read: str
    live: str
    live_seconds: float | None
    direct_seconds: float | None
    server_connections: int = 0


async def connections(server: Server) -> Connections:
    """Count the connections of a store that has appended, read, and is followed."""
    database = server.new_database()
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
    async with eventctx.open(server.url(database)) as engine:
        await _appended_and_read(engine.store)
        ((used,),) = server.execute(count, database)
        async with aclosing(_following(engine.store)) as records:
            await anext(records)
            ((followed,),) = server.execute(count, database)
        pids = [pid for (pid,) in server.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = %s", database
        )]  # fmt: skip
        idle = median(_private(pid) for pid in pids)
    server.drop_database(database)
    return Connections(used, followed, int(idle))


def programs() -> list[str]:
    """The PgBouncers to try."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return named.split(os.pathsep)
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    return [] if found is None else [found]


async def pooled(server: Server, program: str, mode: str) -> Pooled:
    """The same through a PgBouncer."""
    database = server.new_database()
    direct = server.url(database)
    with _bouncer(program, server, mode) as port:
        url = f"postgresql://postgres@127.0.0.1:{port}/{database}"
        found = Pooled(_version(program), mode, "", "", "", None, None)
        found.append, found.read, found.live, found.live_seconds = await _tried(url, direct)
        found.server_connections = server.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s", database
        )[0][0]
    *_, found.direct_seconds = await _tried(direct, direct)
    server.drop_database(database)
    return found


def _version(program: str) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    return said.split()[1]


async def _tried(url: str, writer: str) -> tuple[str, str, str, float | None]:
    """What became of appends, reads and following, the latter with another store that writes."""
    seconds: float | None = None
    try:
        store = await open_store(url, patience=_PATIENCE)
    except EventctxError as error:
        failed = _short(error)
        return failed, failed, failed, None
    other = await open_store(writer)
    name = f"pooled-{now()}"
    appended = read = live = "works"
    try:
        for number in range(_LIVE):
            await store.append(name, drafts_of_append(), _expected(number))
    except EventctxError as error:
        appended = _short(error)
    try:
        found = len([one async for one in store.read(name)])
        read = "works" if found == 3 * _LIVE else f"{found} of {3 * _LIVE} records"
    except EventctxError as error:
        read = _short(error)
    try:
        seconds = await _seen_live(url, store, other, f"{name}-live")
    except* (EventctxError, TimeoutError) as errors:
        live = _short(errors.exceptions[0])
    await other.close()
    with suppress(EventctxError):
        await store.close()
    return appended, read, live, seconds


def _expected(number: int) -> Expected:
    return 3 * number - 1 if number else NO_STREAM


async def _seen_live(url: str, store: EventStore, writer: EventStore, name: str) -> float:
    """Median seconds from the end of another store's append to the record in a subscription.

    Meanwhile further stores append through the same URL, so that a pool of connections is used.
    """
    await writer.append(name, drafts_of_append(), NO_STREAM)
    taken: list[float] = []
    async with aclosing(_following(store, name)) as records, _busy(url, name):
        for _ in range(3):
            await asyncio.wait_for(anext(records), 10)
        for number in range(1, 1 + _LIVE // 4):
            await writer.append(name, drafts_of_append(), 3 * number - 1)
            began = now()
            for _ in range(3):
                await asyncio.wait_for(anext(records), 10)
            taken.append(now() - began)
    return median(taken)


@asynccontextmanager
async def _busy(url: str, name: str) -> AsyncIterator[None]:
    """Stores that append now and then while the block runs."""
    stores = [await open_store(url, patience=_PATIENCE) for _ in range(_BUSY)]
    ended = asyncio.Event()

    async def work(number: int, store: EventStore) -> None:
        while not ended.is_set():
            await store.append(f"{name}-{number}", drafts_of_append(), ANY)
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as tasks:
        for number, store in enumerate(stores):
            tasks.create_task(work(number, store))
        yield
        ended.set()
    for store in stores:
        await store.close()


def _following(store: EventStore, name: str | None = None) -> AsyncIterator[Record]:
    return store.subscribe(stream=name)


async def _appended_and_read(store: EventStore) -> None:
    names = [f"connections-{number}" for number in range(20)]
    await asyncio.gather(*[store.append(name, drafts_of_append(), NO_STREAM) for name in names])

    async def read(name: str) -> None:
        async for _ in store.read(name):
            pass

    await asyncio.gather(*[read(name) for name in names])


@contextmanager
def _bouncer(program: str, server: Server, mode: str) -> Iterator[int]:
    """PgBouncer in front of a server; its port."""
    (port,) = free_ports(1)
    user = server.binaries.user
    with tempfile.TemporaryDirectory(prefix="eventctx-pool-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={urlsplit(server.url()).port} "
            "user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\nauth_file =\npool_mode = {mode}\ndefault_pool_size = {POOL}\n"
            "max_client_conn = 1000\nignore_startup_parameters = extra_float_digits,options\n"
        )
        settings.chmod(0o644)
        if user is not None:
            shutil.chown(settings, user, pwd.getpwnam(user).pw_gid)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **server.binaries.as_user(),  # type: ignore[arg-type]
            )
        try:
            _until_open(port, process, folder / "log")
            yield port
        finally:
            process.kill()
            process.wait()


def _until_open(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = now() + _START_SECONDS
    while now() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
    raise RuntimeError(f"pgbouncer did not start: {log.read_text()[-500:]}")


def _private(pid: int) -> int:
    """Bytes of a process that no other one shares; all that are in memory where it is unknown."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        private = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
        return sum(private) * 1024
    return resident(pid)


def _short(error: BaseException) -> str:
    # What the server said stands behind where and when.
    said = str(error).splitlines()[0].rpartition(": ")[2] if str(error) else ""
    return f"`{type(error).__name__}`: {said}"
