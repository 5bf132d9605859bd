"""A disk of which chosen operations fail: a SQLite VFS between a store and its real files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import apsw

Operation = Literal["write", "sync", "truncate"]
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
        """What SQLite is told."""
        if self.full:
            return apsw.FullError("no space")
        error = apsw.IOError("the disk failed")
        error.extendedresult = {
            "write": apsw.SQLITE_IOERR_WRITE,
            "sync": apsw.SQLITE_IOERR_FSYNC,
            "truncate": apsw.SQLITE_IOERR_TRUNCATE,
        }[self.operation]
        return error


class _FailingFile(apsw.VFSFile):
    def __init__(self, vfs: FailingDisk, filename: Any, flags: Any) -> None:
        super().__init__(PLATFORM_VFS, filename, flags)
        self._vfs = vfs

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._vfs.count("write")
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._vfs.count("truncate")
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        # A real sync would only make the test slow.
        self._vfs.count("sync")

    def excepthook(self, *_: Any) -> None:
        """The failures are meant; apsw prints them otherwise."""


class FailingDisk(apsw.VFS):
    """The default VFS while in use; counts operations, and fails those of ``failure``."""

    def __init__(self) -> None:
        super().__init__("failing", PLATFORM_VFS, makedefault=True)
        self.failure: Failure | None = None
        self.failed = 0
        self._counted = 0

    def begin(self, failure: Failure | None) -> None:
        """Count from here, and fail as ``failure`` says; None: the disk is well again."""
        self.failure, self._counted = failure, 0

    def count(self, operation: Operation) -> None:
        """Note an operation. Raises the error of one that is to fail."""
        failure = self.failure
        if failure is None or failure.operation != operation:
            return
        self._counted += 1
        if 0 <= self._counted - 1 - failure.number < failure.length:
            self.failed += 1
            raise failure.error()

    def xOpen(self, name: Any, flags: Any) -> _FailingFile:  # noqa: N802
        return _FailingFile(self, name, flags)

    def excepthook(self, *_: Any) -> None:
        """The failures are meant; apsw prints them otherwise."""


@contextmanager
def failing_disk() -> Iterator[FailingDisk]:
    """Every database that is opened inside of the block lies on this disk."""
    disk = FailingDisk()
    try:
        yield disk
    finally:
        disk.unregister()
