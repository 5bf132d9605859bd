"""Disks of one's own: in a file whose power can be cut, in memory, with operations that fail.

The first two need root, and the first also loop devices, so their tests are skipped elsewhere, and
say why. Another one notes its operations. A crash state is then built as a disk may leave it: per
file, everything up to its last sync before the cut, plus a random subset of the later writes, each
torn at a multiple of 512 bytes. The store is opened on thousands of such states.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import apsw
import pytest

from eventctx.errors import EventctxError, StreamNotFound
from eventctx.log.record import GENESIS, chain_digest
from eventctx.log.store import ANY, Receipt
from eventctx.stores.sqlite import SqliteStore
from eventctx.stores.sqlite_queries import Queries
from eventctx.stores.sqlite_schema import APPLICATION_ID, Durability
from eventctx.testing.store_contract.drafts import make_draft
from tests.faults.given import scratch, write_files

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
"""The file system stops at once, and not even its own journal is written: a power cut."""


def run(*command: object) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.strip()}")


class LoopDisk:
    """An ext4 file system in a file, mounted at ``folder``."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.folder = folder
        self._image = image
        self._mounted = 0

    def mount(self) -> None:
        """Mount it; the journal of the file system is replayed, as after a real cut.

        What is mounted is a copy. A namespace that another test made meanwhile keeps the file
        system alive that was cut, and Linux would mount that one again.
        """
        self._mounted += 1
        copy = self._image.with_name(f"image-{self._mounted}")
        run("cp", "--sparse=always", self._image, copy)
        self._image.unlink()
        self._image = copy
        run("mount", "-o", "loop", self._image, self.folder)

    def cut_power(self) -> None:
        """Stop the file system in the middle of whatever is under way."""
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(handle)

    def unmount(self) -> None:
        """Unmount it, once nobody uses it any more; a killed process may take a moment to go."""
        for left in reversed(range(100)):
            if not os.path.ismount(self.folder):
                return
            with suppress(*([OSError] if left else [])):
                run("umount", self.folder)
            time.sleep(0.05)


def _need_root() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a disk of one's own needs root on Linux")


@contextmanager
def loop_disk(megabytes: int) -> Iterator[LoopDisk]:
    """A new and mounted disk. Skips the test where none can be made."""
    _need_root()
    with tempfile.TemporaryDirectory(prefix="eventctx-disk-") as name, ExitStack() as ending:
        folder, image = Path(name, "mounted"), Path(name, "image")
        folder.parent.chmod(0o711)  # a server may run as another user
        folder.mkdir()
        with image.open("wb") as file:
            file.truncate(megabytes * 2**20)
        disk = LoopDisk(image, folder)
        try:
            run("mkfs.ext4", "-q", "-F", image)
            disk.mount()
        except OSError as error:
            pytest.skip(f"no ext4 on a loop device can be mounted here ({error})")
        ending.callback(disk.unmount)
        yield disk


@contextmanager
def small_disk(kilobytes: int) -> Iterator[Path]:
    """The folder of a file system in memory that holds so much. Skips where none can be made."""
    _need_root()
    with tempfile.TemporaryDirectory(prefix="eventctx-small-") as folder, ExitStack() as ending:
        try:
            run("mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", folder)
        except OSError as error:
            pytest.skip(f"no tmpfs can be mounted here ({error})")
        ending.callback(run, "umount", folder)
        yield Path(folder)


Operation = Literal["write", "sync", "truncate"]
OPERATIONS: dict[Operation, int] = {
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
}
PLATFORM_VFS = apsw.vfs_names()[0]


class Failure(NamedTuple):
    """The ``number``-th operation of a kind fails (from 0), and ``length`` - 1 more after it.

    ``full``: for want of space; otherwise by an error of the disk.
    """

    operation: Operation
    number: int
    length: int
    full: bool

    def error(self) -> apsw.Error:
        if self.full:
            return apsw.FullError("no space")
        error = apsw.IOError("the disk failed")
        error.extendedresult = OPERATIONS[self.operation]
        return error


class WatchedDisk(apsw.VFS):
    """The default VFS within ``with``, whose every operation is told to ``on`` before it is done.

    A real sync would only make the test slow, so none is.
    """

    def __init__(self) -> None:
        super().__init__("watched", PLATFORM_VFS, makedefault=True)

    def on(self, operation: Operation, name: str, offset: int = 0, data: bytes = b"") -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()

    def xOpen(self, name: Any, flags: Any) -> _WatchedFile:  # noqa: N802
        return _WatchedFile(self, name, flags)

    def excepthook(self, *_: Any) -> None:
        """The failures are meant; apsw prints them otherwise."""


class _WatchedFile(apsw.VFSFile):
    excepthook = WatchedDisk.excepthook

    def __init__(self, disk: WatchedDisk, filename: Any, flags: Any) -> None:
        super().__init__(PLATFORM_VFS, filename, flags)
        self._disk = disk
        name = filename.filename() if isinstance(filename, apsw.URIFilename) else filename
        self._name = Path(name).name

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._disk.on("write", self._name, offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._disk.on("truncate", self._name, size)
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.on("sync", self._name)


class FailingDisk(WatchedDisk):
    """Counts operations, and fails those of ``failure``."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Failure | None = None
        self.failed = 0
        self._counted = 0

    def begin(self, failure: Failure | None) -> None:
        """Count from here, and fail as ``failure`` says; None: the disk is well again."""
        self.failure, self._counted = failure, 0

    def on(self, operation: Operation, *_: Any) -> None:
        failure = self.failure
        if failure is None or failure.operation != operation:
            return
        self._counted += 1
        if 0 <= self._counted - 1 - failure.number < failure.length:
            self.failed += 1
            raise failure.error()


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
