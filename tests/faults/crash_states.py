"""The states in which a power cut may leave the files of a store, and what must hold in each.

A SQLite VFS notes every write, truncation and sync of a run. A crash state is then built as a disk
may leave it: per file, everything up to its last sync before the cut, plus a random subset of the
later writes, each torn at a multiple of 512 bytes. The store is opened on thousands of such
states.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from eventctx.errors import EventctxError, StreamNotFound
from eventctx.log.record import GENESIS, chain_digest
from eventctx.log.store import ANY, Receipt
from eventctx.stores.sqlite import SqliteStore
from eventctx.stores.sqlite_queries import Queries
from eventctx.stores.sqlite_schema import APPLICATION_ID, Durability
from eventctx.testing.store_contract.drafts import make_draft
from tests.faults.disks import WatchedDisk
from tests.faults.given import scratch, write_files

SECTOR = 512


class Step(NamedTuple):
    """What happened to a file: write (offset, data), truncate (size), sync, delete; or an ack."""

    kind: str
    name: str
    offset: int = 0
    data: bytes = b""
    receipt: Receipt | None = None


class NotingDisk(WatchedDisk):
    """Notes what is done. With ``syncs`` false it stands for a store without syncs."""

    def __init__(self, syncs: bool) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.syncs = syncs

    def on(self, operation: str, *what: Any) -> None:
        if operation != "sync" or self.syncs:
            self.steps.append(Step(operation, *what))

    def xDelete(self, filename, syncdir):  # noqa: N802
        super().xDelete(filename, syncdir)
        self.steps.append(Step("delete", Path(filename).name))


async def record_a_run(folder: Path, durability: Durability, *, syncs: bool = True) -> list[Step]:
    """Appends by several sessions, of all sizes, across several checkpoints; no close."""
    with NotingDisk(syncs) as disk:
        store = await SqliteStore.open(folder / "store.db", durability=durability)

        async def session(name: str, chance: random.Random) -> None:
            for _ in range(40):
                sizes = [chance.choice([0, 300, 1000, 5000, 40_000]) for _ in range(2)]
                drafts = [make_draft(bytes(size)) for size in sizes] + [make_draft("a", "b")]
                done = await store.append(name, drafts, ANY)
                disk.steps.append(Step("ack", "", receipt=done.receipt))

        await asyncio.gather(*(session(f"s{n}", random.Random(n)) for n in range(5)))
        steps = list(disk.steps)
        await store.close()
    return steps


class Disk:
    """The files as a run of steps leaves them: what is synced, and what may or may not be."""

    def __init__(self) -> None:
        self.synced: dict[str, bytearray] = {}
        self.pending: dict[str, list[Step]] = {}

    def apply(self, step: Step) -> None:
        if step.kind in ("write", "truncate"):
            self.pending.setdefault(step.name, []).append(step)
        elif step.kind == "sync":
            content = self.synced.setdefault(step.name, bytearray())
            for earlier in self.pending.pop(step.name, []):
                _change(content, earlier)
        elif step.kind == "delete":
            self.synced.pop(step.name, None)
            self.pending.pop(step.name, None)

    def after_a_cut(self, chance: random.Random) -> dict[str, bytearray]:
        """One of the states in which a power cut now may leave the files."""
        files = {}
        share = chance.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        for name in {*self.synced, *self.pending}:
            content = bytearray(self.synced.get(name, b""))
            for step in self.pending.get(name, []):
                if chance.random() < share:
                    _change(content, _torn(step, chance))
            files[name] = content
        return files


def _torn(step: Step, chance: random.Random) -> Step:
    if step.kind != "write" or chance.random() < 0.7:
        return step
    return step._replace(data=step.data[: SECTOR * chance.randint(0, len(step.data) // SECTOR)])


def _change(content: bytearray, step: Step) -> None:
    if step.kind == "truncate":
        del content[step.offset :]
    elif step.data:
        if len(content) < step.offset:
            content.extend(bytes(step.offset - len(content)))
        content[step.offset : step.offset + len(step.data)] = step.data


def crash_states(
    steps: list[Step], count: int, seed: int
) -> Iterator[tuple[dict[str, bytearray], dict[str, Receipt]]]:
    """``count`` states after cuts at random moments, with the last receipt that each stream had."""
    chance = random.Random(seed)
    first = next(n for n, step in enumerate(steps) if step.kind == "ack")
    # Three cuts in four where it hurts most: at or just before an acknowledgement.
    acks = [n for n, step in enumerate(steps) if step.kind == "ack"]
    cuts = sorted(
        chance.choice(acks) + chance.choice([0, 0, 1]) if chance.random() < 0.75
        else chance.randrange(first, len(steps))
        for _ in range(count)
    )  # fmt: skip
    disk, done = Disk(), 0
    receipts: dict[str, Receipt] = {}
    for cut in cuts:
        for step in steps[done:cut]:
            disk.apply(step)
            if step.receipt is not None:
                receipts[step.receipt.stream] = step.receipt
        done = max(done, cut)
        yield disk.after_a_cut(chance), receipts


def problem_in(folder: Path, receipts: dict[str, Receipt]) -> str | None:
    """What a reopened store lacks of its promises; None if nothing."""
    connection = apsw.Connection(str(folder / "store.db"))
    # The files are thrown away: what the log holds need not be copied into the database first.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    try:
        if connection.pragma("application_id") != APPLICATION_ID:
            return "not a store any more"
        queries = Queries(connection)
        for stream, receipt in receipts.items():
            digest, at = GENESIS, 0
            while at <= receipt.position:
                page, _ = queries.page(stream, at, receipt.position, False, 10_000, True)
                if not page:
                    return "acknowledged records are missing"
                for record in page:
                    digest = chain_digest(digest, at, record)
                    if record.position != at or record.digest != digest:
                        return "the chain is broken"
                    at += 1
            if digest != receipt.digest:
                return "another record stands at the place of an acknowledged one"
        for info in queries.streams(-1, 1000)[0]:
            if (info.head + 1) % 3:
                return "half an append"
    except StreamNotFound:
        return "acknowledged records are missing"
    except (apsw.Error, EventctxError) as error:
        return f"damaged: {error}"
    finally:
        connection.close(True)
    return None


def count_problems(steps: list[Step], count: int, seed: int) -> Counter[str]:
    problems: Counter[str] = Counter()
    with scratch() as folder:
        for files, receipts in crash_states(steps, count, seed):
            left = {name: bytes(one) for name, one in files.items() if not name.endswith("-shm")}
            write_files(folder, left)
            problems[problem_in(folder, receipts) or ""] += 1
    del problems[""]
    return problems


def check_crash_states(steps: list[Step], count: int, seed: int) -> None:
    problems = count_problems(steps, count, seed)
    assert not problems, problems
