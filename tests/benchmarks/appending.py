"""A durable append: of one session after another, and of a hundred at once.

The floors are of this machine, without this library, and written to the same disk in turns with it:
a bare write of 1 KB, and aiosqlite.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

import eventctx
from eventctx.log.store import NO_STREAM
from eventctx.stores.sqlite_rows import INSERT_RECORD
from tests.benchmarks.rows import Row, target, unmeasured
from tests.benchmarks.timing import Place, Samples, tail
from tests.benchmarks.workload import draft, message

FIGURE: Final = "one append"
MACHINE: Final = "the machine"
BARE, LOOP = "write 1 KB + fdatasync", "10,000 empty steps of a loop"

SESSIONS: Final = 100

Rows = Sequence[tuple[Any, ...]]


async def measure(place: Place) -> list[Row]:
    return [*await _one(place), *await _many(place)]


# -- one session -----------------------------------------------------------------------------------


async def _one(place: Place) -> list[Row]:
    samples = Samples()
    path = place.path("append.db")
    file = os.open(place.path("bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    kilobyte = os.urandom(1024)

    def write() -> None:
        os.write(file, kilobyte)
        os.fdatasync(file)

    async with eventctx.open(path) as engine:
        context = await engine.session("context", max_tokens=10**9)
        for number in range(place.count(3000, 500)):
            samples.time_call(BARE, write)
            samples.time_call(LOOP, _loop)
            prepared, head = draft(message(number)), number - 1 if number else NO_STREAM
            append = partial(engine.store.append, "store", [prepared], head)
            await samples.time("store.append", append)
            await samples.time("ctx.add_message", partial(context.add_message, message(number)))
    os.close(file)
    beside = (samples.seconds("ctx.add_message") - samples.seconds(BARE)) * 1e6
    return [
        target("add", beside, note="of processor time"),
        *[_floor(samples, name) for name in (BARE, LOOP)],
        *[_append(samples, *of) for of in (("store.append", 2.0), ("ctx.add_message", 1.7))],
    ]


def _loop() -> None:
    for _ in range(10_000):
        pass


def _floor(samples: Samples, name: str) -> Row:
    cpu = samples.cpu(name)
    return Row(figure=MACHINE, name=name, value=samples.micro(name), unit="µs", cpu=cpu)


def _append(samples: Samples, name: str, limit: float) -> Row:
    floor = {"against": BARE, "floor": samples.micro(BARE), "floor_cpu": samples.cpu(BARE)}
    made = msgspec.structs.replace(_floor(samples, name), figure=FIGURE, limit=limit, **floor)
    return msgspec.structs.replace(made, note=tail(samples, name))


def stored(path: Path) -> tuple[list[str], Rows]:
    """The statements that made the tables of the store at ``path``, and its records' rows."""
    connection = apsw.Connection(str(path))
    tables = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    rows: Rows = connection.execute("SELECT * FROM records ORDER BY pos").fetchall()
    connection.close()
    return [str(sql) for (sql,) in tables], rows


# -- a hundred sessions ----------------------------------------------------------------------------


async def _many(place: Place) -> list[Row]:
    try:
        import aiosqlite  # noqa: F401 - whether it is there
    except ImportError as error:
        return [unmeasured("sessions", str(error))]
    each = place.count(100, 20)
    samples = Samples()
    for _ in range(place.count(3, 2)):
        path = place.path("contexts.db")
        await _through_contexts(path, each, samples)
        tables, rows = stored(path)
        # A fifth of the rows: each waits for the disk by itself.
        rows = rows[: len(rows) // 5]
        await _through_aiosqlite(place.path("aio.db"), tables, rows, samples)
    counts = {"context": SESSIONS * each, "aio": len(rows)}
    rates = {name: count / samples.median(name) for name, count in counts.items()}
    return [target("sessions", rates["context"], rates["aio"], "aiosqlite: a commit a message")]


async def _through_contexts(path: Path, each: int, samples: Samples) -> None:
    async with eventctx.open(path) as engine:
        contexts = [await engine.session(f"s{i}", max_tokens=10**9) for i in range(SESSIONS)]
        work = [message(number) for number in range(SESSIONS * each)]

        async def session(index: int) -> None:
            for one in work[index * each : (index + 1) * each]:
                await contexts[index].add_message(one)

        with samples.step("context"):
            await asyncio.gather(*[session(index) for index in range(SESSIONS)])


async def _through_aiosqlite(
    path: Path, tables: Sequence[str], rows: Rows, samples: Samples
) -> None:
    """What an application would write itself: a connection, a lock, and a commit for each row."""
    import aiosqlite

    connection = await aiosqlite.connect(path, isolation_level=None)
    for sql in ("PRAGMA journal_mode=wal", "PRAGMA synchronous=full", *tables):
        await connection.execute(sql.replace(" STRICT", ""))
    await connection.execute("PRAGMA wal_autocheckpoint=1000")
    lock = asyncio.Lock()

    async def session(own: Rows) -> None:
        for row in own:
            async with lock:
                await connection.execute(INSERT_RECORD, row)

    with samples.step("aio"):
        await asyncio.gather(*[session(rows[start::SESSIONS]) for start in range(SESSIONS)])
    await connection.close()
