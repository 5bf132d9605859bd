"""What the machine itself can do, without this library: the floors of every other figure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import eventctx
from eventctx.log.store import NO_STREAM
from tests.benchmarks.floors import (
    KILOBYTE,
    AioTable,
    BareFile,
    RawTable,
    Rows,
    schema,
    stored_rows,
)
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import drafts

FIGURE: Final = "the machine"
DISK, INSERT, AIOSQLITE = "write 1 KB + fdatasync", "a raw insert, 100 rows a commit", "aiosqlite"
HASH, LOOP = "SHA-256 of 1 KB", "a step of an empty Python loop"

BATCH: Final = 100
OFTEN: Final = 1000
"""How often the two shortest are done in a step: a clock's own time is not to count."""


async def measure(place: Place) -> list[Row]:
    samples = Samples()
    tables, rows = await _rows_of_a_store(place)
    bare, table = BareFile(place.path("bare")), RawTable(place.path("raw.db"), tables)
    aio: AioTable | None = None
    with suppress(ImportError):
        aio = await AioTable.open(place.path("aio.db"), tables)
    for first in range(0, len(rows), BATCH):
        batch = rows[first : first + BATCH]
        samples.time_call(INSERT, partial(table.insert, batch))
        samples.time_call(HASH, partial(_repeated, lambda: hashlib.sha256(KILOBYTE).digest()))
        samples.time_call(LOOP, _loop)
        for row in batch[:20]:
            samples.time_call(DISK, bare.write)
            if aio is not None:
                await samples.time(AIOSQLITE, partial(aio.insert, row))
    bare.close()
    table.close()
    if aio is not None:
        await aio.close()
    per_step = {DISK: 1, INSERT: BATCH, AIOSQLITE: 1, HASH: OFTEN, LOOP: OFTEN}
    return [_row(samples, name, count) for name, count in per_step.items()]


def _row(samples: Samples, name: str, count: int) -> Row:
    if name not in samples.by_name:
        return missing(FIGURE, name, "not installed")
    return Row(
        figure=FIGURE,
        name=name,
        value=samples.micro(name) / count,
        unit="µs",
        cpu=samples.cpu(name, count),
        note="an insert of a store's row, a commit each" if name == AIOSQLITE else "",
    )


async def _rows_of_a_store(place: Place) -> tuple[list[str], Rows]:
    """The tables of a store, and the rows that it wrote for messages of 1 KB."""
    path = place.path("store.db")
    async with eventctx.open(path, durability="normal") as engine:
        await engine.store.append("some", [*drafts(place.count(10_000, 2000))], NO_STREAM)
    return schema(path), stored_rows(path)


def _repeated(work: Callable[[], Any]) -> None:
    for _ in range(OFTEN):
        work()


def _loop() -> None:
    for _ in range(OFTEN):
        pass
