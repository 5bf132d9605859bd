"""The file of a full-text index: opens or makes it, notices its loss, and replaces it.

Only a file that is recognised as ours is ever changed or deleted (``sqlite_index_marker``). Where
another one has the name, it is left alone, and the index is kept in memory.
"""

from __future__ import annotations

import errno
import logging
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from eventctx.errors import StoreFull
from eventctx.log.private_files import FILE_RIGHTS
from eventctx.search.sqlite_index_marker import (
    Found,
    has_marker,
    look,
    make_file,
    make_tables,
    remove_ours,
)
from eventctx.stores.sqlite_errors import translated
from eventctx.stores.sqlite_schema import LockWait

SUFFIX: Final = ".eventctx-recall"
OLD_SUFFIX: Final = "-recall"
"""Of the files of earlier releases. Other programs may use this name, too."""
MEMORY: Final = Path(":memory:")

SCHEMA_VERSION: Final = 2
_VERSIONS: Final = 1_000
_RACES: Final = 3
"""Tries to open the file again, if another process deletes or damages it at that moment."""
_CACHE_KIB: Final = 16 * 1024

REFUSED: Final = (  # by the rights of the file or its folder
    apsw.CantOpenError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.AuthError,
)
_DAMAGED: Final = (apsw.NotADBError, apsw.CorruptError, apsw.SQLError)

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})

_log = logging.getLogger("eventctx.search")


class _Foreign(Exception):
    """The file of our name is somebody else's."""


class IndexFile:
    """Opens the index of a store. ``path`` becomes ``MEMORY`` if no file can be written.

    With ``read_only`` the file of others is read once, where there is one, and never written.
    """

    def __init__(
        self, store: Path | None, version: int, lock_timeout: float, *, read_only: bool = False
    ) -> None:
        self._store = store
        self._beside = MEMORY if store is None else store.with_name(store.name + SUFFIX)
        self._read_only = read_only
        self._version = SCHEMA_VERSION * _VERSIONS + version
        self._lock_timeout = lock_timeout
        self._opened: tuple[int, int] | None = None
        self._system_errno = 0
        nowhere = store is None or read_only
        self.path = MEMORY if nowhere else self._beside

    def open(self) -> apsw.Connection:
        """A connection to the index; replaces one of ours that is damaged or of another version.

        A file that is not ours is left alone, with a warning, and the index is in memory. Raises
        StoreUnavailable (locked), StoreFull, StoreError.
        """
        if self.path == MEMORY:
            return self._connect()
        try:
            for _ in range(_RACES):
                try:
                    return self._connect()
                except _DAMAGED:
                    self.remove()
                except (apsw.IOError, apsw.CantOpenError):
                    continue  # for example, the file was deleted a moment ago
            return self._connect()
        except _Foreign:
            self._leave_alone()
            return self._connect()
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise StoreFull(
                    f"{self.path}: no space left to write; free some and try again"
                ) from error
            self.keep_in_memory()
            return self._connect()
        except REFUSED:
            self.keep_in_memory()
            return self._connect()
        except apsw.Error as error:
            raise translated(error, self.path, self._system_errno) from error

    def _leave_alone(self) -> None:
        _log.warning(
            "%s is not a search index of eventctx and is left alone; the index is kept in memory "
            "and made anew by every process. Move the file away to have it kept beside the store",
            self.path,
        )
        self.keep_in_memory()

    def keep_in_memory(self) -> None:
        """Use no file from now on."""
        self.path, self._opened = MEMORY, None

    def was_replaced(self) -> bool:
        """Whether the file that was opened is no longer the one of its name."""
        return self._opened is not None and _identity(self.path) != self._opened

    def remove(self) -> None:
        """Delete the file, if it is still the one that was opened, and is still ours.

        Another process that found the same damage may have put a sound file in its place. A file
        that cannot be deleted is left alone, and not used again.
        """
        if self.path == MEMORY or self.was_replaced():
            return
        try:
            if look(self.path) is Found.FOREIGN:
                self._leave_alone()
            else:
                remove_ours(self.path)
        except (apsw.Error, OSError):
            self.keep_in_memory()

    def _connect(self) -> apsw.Connection:
        self._opened = None
        if self.path != MEMORY:
            self._make_sure_of_ours()
            self._opened = _identity(self.path)
        # A database without a name is a temporary one: SQLite moves to the disk what is too large.
        name = "" if self._read_only else str(self.path)
        connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            self._prepare(connection)
        except BaseException:
            self._system_errno = connection.system_errno
            with suppress(apsw.Error):
                connection.close(True)
            raise
        return connection

    def _make_sure_of_ours(self) -> None:
        """Make the file, unless it is there. Raises _Foreign where another one has its name."""
        assert self._store is not None  # noqa: S101 - tells the type checker
        found = look(self.path)
        if found is Found.NOTHING:
            make_file(self.path, self._version, self._rights(self._store))
            # The words of messages lie in it, and nobody would look for it any more.
            with suppress(apsw.Error, OSError):
                remove_ours(self._store.with_name(self._store.name + OLD_SUFFIX))
            found = look(self.path)
        if found is Found.FOREIGN:
            raise _Foreign

    def _rights(self, store: Path) -> int:
        """Those of the store: who may read it may read its index."""
        try:
            return stat.S_IMODE(store.stat().st_mode) & 0o666
        except FileNotFoundError:
            return FILE_RIGHTS

    def _prepare(self, connection: apsw.Connection) -> None:
        connection.set_busy_handler(LockWait(self._lock_timeout))
        if self.path == MEMORY:
            if not (self._read_only and self._copied(connection)):
                make_tables(connection, self._version)
        elif not has_marker(connection):
            raise _Foreign
        elif connection.pragma("user_version") != self._version:
            raise apsw.NotADBError("an index of another version")
        connection.execute(
            # No write-ahead log: its two files would remain when a user deletes the index.
            "PRAGMA journal_mode=DELETE; PRAGMA synchronous=NORMAL; PRAGMA secure_delete=ON;"
            f"PRAGMA cache_size=-{_CACHE_KIB}; PRAGMA temp_store=MEMORY"
        ).fetchall()

    def _copied(self, connection: apsw.Connection) -> bool:
        """Fill an empty database with the index that lies beside the store, if it is of use."""
        with suppress(apsw.Error, OSError):
            if look(self._beside) is not Found.OURS:
                return False
            source = apsw.Connection(str(self._beside), flags=apsw.SQLITE_OPEN_READONLY)
            try:
                source.set_busy_handler(LockWait(self._lock_timeout))
                if source.pragma("user_version") != self._version or not has_marker(source):
                    return False
                with connection.backup("main", source, "main") as copy:
                    copy.step()
                return True
            finally:
                source.close(True)
        return False


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
