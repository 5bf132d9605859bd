"""The file of a full-text index: creates and recognises it, notices its loss, and replaces it."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from eventctx.errors import StoreUnavailable
from eventctx.stores.sqlite_errors import translated
from eventctx.stores.sqlite_schema import LockWait

SUFFIX: Final = "-recall"
MEMORY: Final = Path(":memory:")

APPLICATION_ID: Final = 0x45435449  # "ECTI"
SCHEMA_VERSION: Final = 1
_VERSIONS: Final = 1_000
_RACES: Final = 3
"""Tries to open the file again, if another process deletes or damages it at that moment."""
_CACHE_KIB: Final = 16 * 1024
_HASH_BYTES: Final = 8 * 2**20

# ``words`` keeps no texts: a message is stored once, in the store, so an erasure there is enough.
_TABLES: Final = """
CREATE TABLE mark(one INTEGER PRIMARY KEY, position INTEGER NOT NULL, id BLOB NOT NULL) STRICT;
CREATE TABLE streams(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE messages(
  id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, position INTEGER NOT NULL, idx INTEGER NOT NULL,
  number INTEGER NOT NULL, time INTEGER NOT NULL) STRICT;
CREATE UNIQUE INDEX messages_place ON messages(stream, position, idx);
CREATE INDEX messages_number ON messages(stream, number);
CREATE VIRTUAL TABLE words USING fts5(
  text, parts, content='', contentless_delete=1,
  tokenize="unicode61 remove_diacritics 2 tokenchars '_'");
"""
REFUSED: Final = (  # by the rights of the file or its folder
    apsw.CantOpenError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.AuthError,
)
_FOREIGN: Final = (apsw.NotADBError, apsw.CorruptError, apsw.SQLError)


class IndexFile:
    """Opens the index of a store. ``path`` becomes ``MEMORY`` if no file can be written."""

    def __init__(self, store: Path | None, version: int, lock_timeout: float) -> None:
        self._store = store
        self._version = SCHEMA_VERSION * _VERSIONS + version
        self._lock_timeout = lock_timeout
        self._opened: tuple[int, int] | None = None
        self._system_errno = 0
        self.path = MEMORY if store is None else store.with_name(store.name + SUFFIX)

    def open(self) -> apsw.Connection:
        """A connection to the index; replaces a file that is not an index of this version.

        Raises StoreUnavailable (a folder in its place, or locked), StoreFull, StoreError.
        """
        if self.path == MEMORY:
            return self._connect()
        if self.path.is_dir():
            raise StoreUnavailable(
                f"{self.path}: expected the search index of the store, or nothing, found a "
                "folder; move it away"
            )
        try:
            for _ in range(_RACES):
                try:
                    return self._connect()
                except _FOREIGN:
                    self.remove()
                except (apsw.IOError, apsw.CantOpenError):
                    continue  # for example, the file was deleted a moment ago
            return self._connect()
        except (*REFUSED, OSError):
            self.keep_in_memory()
            return self._connect()
        except apsw.Error as error:
            raise translated(error, self.path, self._system_errno) from error

    def keep_in_memory(self) -> None:
        """Use no file from now on."""
        self.path, self._opened = MEMORY, None

    def was_replaced(self) -> bool:
        """Whether the file that was opened is no longer the one of its name."""
        return self._opened is not None and _identity(self.path) != self._opened

    def remove(self) -> None:
        """Delete the file, if it is still the one that was opened.

        Another process that found the same damage may have put a sound file in its place. A file
        that cannot be deleted is left alone, and not used again.
        """
        if self.path == MEMORY or self.was_replaced():
            return
        try:
            for path in (self.path, self.path.with_name(self.path.name + "-journal")):
                with suppress(FileNotFoundError):
                    path.unlink()
        except OSError:
            self.keep_in_memory()

    def _connect(self) -> apsw.Connection:
        self._opened = None
        if self.path != MEMORY:
            self._make()
            self._opened = _identity(self.path)
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            self._prepare(connection)
        except BaseException:
            self._system_errno = connection.system_errno
            with suppress(apsw.Error):
                connection.close(True)
            raise
        return connection

    def _make(self) -> None:
        """Create the file with the access rights of the store's."""
        assert self._store is not None  # noqa: S101 - tells the type checker
        try:
            rights = stat.S_IMODE(self._store.stat().st_mode)
        except FileNotFoundError:
            rights = 0o600
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, rights & 0o666))

    def _prepare(self, connection: apsw.Connection) -> None:
        connection.set_busy_handler(LockWait(self._lock_timeout))
        connection.execute(
            # No write-ahead log: its two files would remain when a user deletes the index.
            "PRAGMA journal_mode=DELETE; PRAGMA synchronous=NORMAL; PRAGMA secure_delete=ON;"
            f"PRAGMA cache_size=-{_CACHE_KIB}; PRAGMA temp_store=MEMORY"
        ).fetchall()
        identity = (connection.pragma("application_id"), connection.pragma("user_version"))
        if identity == (APPLICATION_ID, self._version):
            return
        connection.execute("BEGIN IMMEDIATE").fetchall()
        # Another process may have created the tables meanwhile.
        identity = (connection.pragma("application_id"), connection.pragma("user_version"))
        if identity != (APPLICATION_ID, self._version):
            if connection.execute("SELECT 1 FROM sqlite_schema").fetchall() or identity != (0, 0):
                raise apsw.NotADBError("another program's database, or another version's index")
            connection.execute(_TABLES).fetchall()
            connection.execute(
                "INSERT INTO words(words, rank) VALUES('hashsize', ?)", (_HASH_BYTES,)
            ).fetchall()
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", self._version)
        connection.execute("COMMIT").fetchall()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
