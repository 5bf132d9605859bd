"""The file of a full-text index: opens or makes it, notices its loss, and replaces it.

Only a file that is recognised as ours is ever changed or deleted. Where another one has the name,
it is left alone, and the index is kept in memory.

Our file carries ``APPLICATION_ID`` in its header from its first byte on: it is made whole under
another name (``template``) and then given its own. A database that is sound has the marker table,
too. A file that is damaged may have lost that, but its header is enough: no other program writes
SQLite files of this name with this id.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final

import apsw

from eventctx.errors import StoreFull
from eventctx.log.private_files import FILE_RIGHTS
from eventctx.stores.sqlite_errors import translate
from eventctx.stores.sqlite_schema import LockWait

APPLICATION_ID: Final = 0x45435449  # "ECTI"

_MAGIC: Final = b"SQLite format 3\0"
# Of the header: https://www.sqlite.org/fileformat.html#the_database_header
_ID_AT: Final = slice(68, 72)
_HASH_BYTES: Final = 8 * 2**20

# ``words`` keeps no texts: a message is stored once, in the store, so an erasure there is enough.
_TABLES: Final = """
CREATE TABLE eventctx_recall_index(about TEXT NOT NULL) STRICT;
INSERT INTO eventctx_recall_index VALUES('search index of an eventctx store; may be deleted');
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


class Found(Enum):
    """The kinds of files at a path."""

    NOTHING = "nothing"
    OURS = "an index of ours, sound or damaged"
    FOREIGN = "a file of another program"


def look(path: Path) -> Found:
    """Look at ``path``. Nothing is changed, followed or waited for.

    The header is read through SQLite: if this process opened the file by itself, closing it would
    drop the locks that SQLite has on it here. Raises OSError and the errors of apsw.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return Found.NOTHING
    if not stat.S_ISREG(mode):
        return Found.FOREIGN
    header = _header(path)
    ours = header.startswith(_MAGIC) and header[_ID_AT] == APPLICATION_ID.to_bytes(4)
    return Found.OURS if ours else Found.FOREIGN


def _header(path: Path) -> bytes:
    file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        return file.xRead(100, 0)
    finally:
        file.xClose()


def has_marker(connection: apsw.Connection) -> bool:
    """Whether a database that SQLite can read has our marker table."""
    sql = "SELECT 1 FROM sqlite_schema WHERE type='table' AND name='eventctx_recall_index'"
    return bool(connection.execute(sql).fetchall())


def remove_ours(path: Path) -> None:
    """Delete an index of ours and its journal; anything else stays. Raises OSError."""
    if look(path) is Found.OURS:
        for one in (path, path.with_name(path.name + "-journal")):
            with suppress(FileNotFoundError):
                one.unlink()


def make_tables(connection: apsw.Connection, version: int) -> None:
    """Make an empty index of ``version`` in an empty database."""
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", version)
    connection.execute(_TABLES).fetchall()
    connection.execute(
        "INSERT INTO words(words, rank) VALUES('hashsize', ?)", (_HASH_BYTES,)
    ).fetchall()


@cache
def template(version: int) -> bytes:
    """The file of an empty index."""
    connection = apsw.Connection(":memory:")
    try:
        make_tables(connection, version)
        return connection.serialize("main")
    finally:
        connection.close()


def make_file(path: Path, version: int, rights: int) -> None:
    """Put an empty index at ``path``, whole and with its marker; a file that is there stays.

    ``rights`` are the file's, less those that the umask takes. Raises OSError.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
    file = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, rights)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(template(version))
        if not os.path.lexists(path):
            # It is of an index that was deleted while a process wrote to it. SQLite would take it
            # for the new file's own, and roll that back to the old state.
            path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
        with suppress(FileExistsError):  # another process was faster
            _give_name(part, path)
    finally:
        part.unlink(missing_ok=True)


def _give_name(part: Path, path: Path) -> None:
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links, and no other step there replaces nothing for certain.
        if path.exists() or path.is_symlink():
            raise FileExistsError(path) from None
        part.rename(path)


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
    """The file of our name belongs to another program."""


class IndexFile:
    """Opens the index of a store. ``path`` becomes ``MEMORY`` if no file can be written.

    With ``read_only`` the file of others is read once, where there is one, and never written.
    """

    def __init__(
        self, store: Path | None, version: int, lock_timeout: float, *, read_only: bool = False
    ) -> None:
        self._store = store
        self._own_path = MEMORY if store is None else store.with_name(store.name + SUFFIX)
        self._read_only = read_only
        self._version = SCHEMA_VERSION * _VERSIONS + version
        self._lock_timeout = lock_timeout
        self._opened: tuple[int, int] | None = None
        self._system_errno = 0
        nowhere = store is None or read_only
        self.path = MEMORY if nowhere else self._own_path

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
            raise translate(error, self.path, self._system_errno) from error

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
        # A database without a name is a temporary one: SQLite moves large ones to the disk.
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
        """The rights of the store: its readers may read its index."""
        try:
            return stat.S_IMODE(store.stat().st_mode) & 0o666
        except FileNotFoundError:
            return FILE_RIGHTS

    def _prepare(self, connection: apsw.Connection) -> None:
        connection.set_busy_handler(LockWait(self._lock_timeout))
        if self.path == MEMORY:
            if not (self._read_only and self._copy(connection)):
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

    def _copy(self, connection: apsw.Connection) -> bool:
        """Fill an empty database with the index in the store's folder, if it is of use."""
        with suppress(apsw.Error, OSError):
            if look(self._own_path) is not Found.OURS:
                return False
            source = apsw.Connection(str(self._own_path), flags=apsw.SQLITE_OPEN_READONLY)
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
