"""Disks of one's own: in a file whose power can be cut, in memory, and with operations that fail.

The first two need root, and the first also loop devices, so their tests are skipped elsewhere, and
say why.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import apsw
import pytest

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
