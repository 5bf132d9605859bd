"""Translates SQLite's errors to ``eventctx.errors``; a driver's exception is only their cause."""

from __future__ import annotations

import errno
from pathlib import Path

import apsw

from eventctx.errors import (
    EventctxError,
    InvalidSetting,
    LogCorrupted,
    NotAStore,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from eventctx.stores.threads import closed_error

_NO_SPACE = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
_PASSING = (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError, apsw.ReadOnlyError)


def is_passing(error: Exception) -> bool:
    """Whether the cause is the lock, the disk or the rights, rather than one of the appends."""
    return isinstance(error, (*_PASSING, apsw.CantOpenError, apsw.CorruptError, apsw.NoMemError))


def translate(error: Exception, path: Path, system_errno: int = 0) -> EventctxError:
    """The eventctx error for ``error``, with ``error`` as its cause.

    ``system_errno`` is the operating system's error number, from ``Connection.system_errno``.
    """
    if isinstance(error, EventctxError):
        return error
    found = _error_for(error, path, system_errno)
    found.__cause__ = error
    return found


def _error_for(error: Exception, path: Path, system_errno: int) -> EventctxError:
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreUnavailable(
            f"{path}: expected to get the write lock in time, but another program holds it; wait "
            "until it is done, or raise lock_timeout, and try again"
        )
    if isinstance(error, apsw.FullError) or (
        isinstance(error, (apsw.IOError, apsw.CantOpenError)) and system_errno in _NO_SPACE
    ):
        return StoreFull(f"{path}: no space left to write; free some and try again ({error})")
    if isinstance(error, apsw.ReadOnlyError):
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_READONLY_DBMOVED:
            return StoreUnavailable(
                f"{path}: expected the file that was being opened, but another one was put in its "
                "place meanwhile; open it again"
            )
        return read_only(path)
    if isinstance(error, (apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError)):
        return StoreUnavailable(
            f"{path}: cannot be opened ({error}); check that the folder exists and that you may "
            "read and write it and the file"
        )
    if isinstance(error, apsw.NotADBError):
        return not_a_store(path, "a file of another format")
    if isinstance(error, apsw.CorruptError):
        return StoreUnavailable(
            f"{path}: the database file is damaged ({error}); restore it from a backup, or save "
            "what can be read with `sqlite3 FILE .recover`"
        )
    if isinstance(error, apsw.ConnectionClosedError):
        return closed_error(path)
    if isinstance(error, apsw.IOError):
        return StoreUnavailable(f"{path}: the disk reported an error ({error}); check the disk")
    if isinstance(error, UnicodeDecodeError):
        return LogCorrupted("", -1, f"{path}: a text in the file is no UTF-8 ({error.reason})")
    if isinstance(error, apsw.Error):
        return StoreError(f"{path}: SQLite refused: {error}")
    return InvalidSetting(f"{path}: an argument cannot be stored: {error}")


def refused_by_system(error: OSError, path: Path) -> StoreUnavailable:
    """The eventctx error for an operation on the file system, with ``error`` as its cause."""
    found: StoreUnavailable
    if error.errno in _NO_SPACE:
        found = StoreFull(f"{path}: no space left to write; free some and try again")
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        found = StoreReadOnly(
            f"{path}: expected to be allowed to write there, found {error.strerror!r}; change the "
            "rights, or choose another place"
        )
    else:
        found = StoreUnavailable(f"{path}: cannot be written: {error.strerror}")
    found.__cause__ = error
    return found


def read_only(path: Path) -> StoreReadOnly:
    """The error for a write to a store that can only be read."""
    return StoreReadOnly(
        f"{path}: expected to be allowed to write, but the file or its folder is read-only; change "
        "the rights, or copy the file"
    )


def not_a_store(path: Path, found: str) -> NotAStore:
    """The error for a path that holds something else, named by ``found``."""
    return NotAStore(f"{path}: expected an eventctx database, found {found}; choose another path")
