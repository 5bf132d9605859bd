"""The database file: its tables, how it is recognised, and how it is opened.

Rows lie in the order of the log: ``records.pos`` is the global position. A record's first body is
in the record's row, data last, so that a fold that needs no content never reads the overflow pages
of a large body; further bodies are in ``bodies`` under ``pos * 2**20 + index``. A stream's head is
its last record and is stored nowhere else, so the two cannot disagree and an append writes one page
less. An erased body has no salt and no data.
"""

from __future__ import annotations

import logging
import os
import random
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import apsw

from eventctx.errors import StoreReadOnly, StoreTooNew, StoreUnavailable
from eventctx.stores.sqlite_errors import not_a_store, translate

_log = logging.getLogger("eventctx.stores")

Durability = Literal["full", "normal"]
_Connect = Callable[[str, int, Callable[[int], bool]], apsw.Connection]

APPLICATION_ID = 0x45435458  # "ECTX"
SCHEMA_VERSION = 1
MMAP_BYTES = 256 * 2**20

OLDEST_SQLITE = 3_051_000
"""SQLite notices from 3.51.0 on that another part of its process dropped its locks on a file."""

_SMALLEST_PAGE = 512
TABLES = """
CREATE TABLE streams(
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, parent INTEGER REFERENCES streams(id),
  forked_at INTEGER, created INTEGER NOT NULL) STRICT;
CREATE TABLE types(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE records(
  pos INTEGER PRIMARY KEY, stream INTEGER NOT NULL, position INTEGER NOT NULL, id BLOB NOT NULL,
  type INTEGER NOT NULL, version INTEGER NOT NULL, time INTEGER NOT NULL, iteration INTEGER,
  turn ANY, span ANY, parent_span ANY, digest BLOB NOT NULL, payload BLOB NOT NULL,
  bodies INTEGER NOT NULL, body_digest BLOB, salt BLOB, facts BLOB, data BLOB) STRICT;
CREATE UNIQUE INDEX records_place ON records(stream, position);
CREATE TABLE bodies(
  id INTEGER PRIMARY KEY, digest BLOB NOT NULL, salt BLOB, facts BLOB NOT NULL, data BLOB) STRICT;
CREATE TABLE snapshots(
  stream INTEGER NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL, digest BLOB NOT NULL,
  version INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE(stream, name)) STRICT;
CREATE TABLE checkpoints(name TEXT PRIMARY KEY, position INTEGER NOT NULL) STRICT;
"""


class Opened(NamedTuple):
    """A store's two connections; no writer when the file cannot be written."""

    writer: apsw.Connection | None
    reader: apsw.Connection
    lock: LockWait


class LockWait:
    """A busy handler that tries the lock often, and records that it had to wait.

    SQLite's own handler pauses up to 100 ms between two tries, with which two busy writers starve
    each other for seconds.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._deadline = 0.0
        self.waited = False

    def __call__(self, attempts: int) -> bool:
        """Pause, and return whether to try again; SQLite counts ``attempts`` from 0."""
        now = time.monotonic()
        if attempts == 0:
            self._deadline = now + self.timeout
        if now >= self._deadline:
            return False
        self.waited = True
        # Uneven steps, so that two processes do not keep missing each other.
        time.sleep(min(0.0002 * (attempts + 1), 0.002) * random.uniform(0.5, 1.5))  # noqa: S311
        return True


def open_file(
    path: str | Path, *, durability: Durability, create: bool, lock_timeout: float
) -> tuple[Path, Opened]:
    """Open or create the database at ``path``, and return its absolute path with the connections.

    ``lock_timeout`` is in seconds.

    Raises NotAStore, StoreTooNew, StoreUnavailable, StoreReadOnly (a new store is needed but may
    not be written), StoreFull.
    """
    # Absolute: the working directory may change, and ``:memory:`` is a file name here.
    path = Path(path).absolute()
    _check_library()
    check_path(path, create)
    lock = LockWait(lock_timeout)
    with _opening(path) as connect:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        made = create and _make_private(path)
        writer = connect(str(path), flags, lock)
        if writer.readonly("main") or not _can_use_wal(writer):
            writer.close()
            reader = _open_for_reading(path, connect, LockWait(lock_timeout))
            return path, Opened(None, reader, lock)
        if _is_new(writer, path):
            if made:
                path.chmod(0o600)
            _create(writer, path, lock_timeout)
        _configure(writer, path, durability, lock_timeout)
        reader = connect(str(path), apsw.SQLITE_OPEN_READWRITE, LockWait(lock_timeout))
        _read_only(reader)
        return path, Opened(writer, reader, lock)


def open_for_reading(
    path: Path, *, lock_timeout: float = 5.0, immutable: bool = False
) -> apsw.Connection:
    """One more connection to a store, which only reads; ``lock_timeout`` is in seconds.

    With ``immutable``, for a file that nobody writes, no helper files are made. Raises NotAStore,
    StoreTooNew, StoreUnavailable, StoreReadOnly (there is no store in it yet).
    """
    with _opening(path) as connect:
        return _open_for_reading(path, connect, LockWait(lock_timeout), immutable)


@contextmanager
def _opening(path: Path) -> Iterator[_Connect]:
    """A function that opens connections; after an error they are closed, and it is translated."""
    connections: list[apsw.Connection] = []
    try:
        yield partial(_connect, connections)
    except apsw.Error as error:
        system_errno = connections[-1].system_errno if connections else 0
        _close(connections)
        raise translate(error, path, system_errno) from error
    except BaseException:
        _close(connections)
        raise


def _connect(
    connections: list[apsw.Connection], name: str, flags: int, busy: Callable[[int], bool]
) -> apsw.Connection:
    """A guarded connection, which is added to ``connections``."""
    connection = apsw.Connection(name, flags=flags)
    connections.append(connection)
    connection.set_busy_handler(busy)
    _guard(connection)
    return connection


def _guard(connection: apsw.Connection) -> None:
    """Trust nothing that another hand put into the schema, and notice damaged pages early."""
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.execute("PRAGMA cell_size_check=ON").fetchall()


def _close(connections: list[apsw.Connection]) -> None:
    for connection in connections:
        with suppress(apsw.Error):
            connection.close(True)


def check_path(path: Path, create: bool) -> None:
    """Refuse a path that is plainly no database, before SQLite touches it.

    The file is not opened: closing it again would drop this process's locks on it. Raises
    NotAStore, StoreUnavailable.
    """
    try:
        if not path.exists():
            if not create:
                raise StoreUnavailable(f"{path}: expected a store, found nothing there")
            if not path.parent.is_dir():
                raise StoreUnavailable(f"{path}: its folder does not exist; create it first")
            return
        found = path.stat()
    except OSError as error:
        raise StoreUnavailable(f"{path}: cannot be read: {error.strerror}") from error
    if stat.S_ISDIR(found.st_mode):
        raise not_a_store(path, "a folder")
    if not stat.S_ISREG(found.st_mode):
        # SQLite would wait for ever for somebody to write to a pipe.
        raise not_a_store(path, "a pipe, a socket or a device")
    if 0 < found.st_size < _SMALLEST_PAGE:  # SQLite would take it for an empty file
        raise not_a_store(path, "a file of another format")


def _check_library() -> None:
    if apsw.SQLITE_VERSION_NUMBER < OLDEST_SQLITE:
        raise StoreUnavailable(
            f"expected SQLite 3.51.0 or newer, found {apsw.sqlite_lib_version()}: an older one "
            "does not notice that its locks were dropped; upgrade the package apsw"
        )


def _make_private(path: Path) -> bool:
    """Create a missing file for its owner alone; true if it was missing.

    SQLite gives the rights of the file to its log, too.
    """
    try:
        # Not ``open``: closing the descriptor would drop locks that another thread took by now.
        os.mknod(path, stat.S_IFREG | 0o600)
    except FileExistsError:
        return False
    except (OSError, AttributeError):
        return not path.exists()  # SQLite makes it, or says why it cannot
    return True


def tell_rights(connection: apsw.Connection, path: Path) -> None:
    """Warn once in the life of a store that others may read it, as earlier releases let them.

    To be called in a transaction: that it was said is kept in the store.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name != "posix" or not mode & 0o077:
        return
    told = "INSERT OR IGNORE INTO checkpoints VALUES('eventctx:rights', ?)"
    connection.execute(told, (mode,)).fetchall()
    if connection.changes():
        _log.warning(
            "%s can be read by other users of this machine (mode %03o); if that is not meant, "
            "close the store and run: chmod 600 '%s'*",
            path, mode, path,
        )  # fmt: skip


def _can_use_wal(connection: apsw.Connection) -> bool:
    """False if SQLite may not keep its log in the file's folder."""
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        return False
    return True


def _open_for_reading(
    path: Path, connect: _Connect, busy: Callable[[int], bool], immutable: bool = False
) -> apsw.Connection:
    reader = None if immutable else _with_writers(path, connect, busy)
    if reader is None:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        reader = connect(path.absolute().as_uri() + "?immutable=1", flags, busy)
    if _is_new(reader, path):
        raise StoreReadOnly(
            f"{path}: expected a store, found an empty file, and it is opened for reading; name "
            "the store, or open this file with the right to write it, which makes one there"
        )
    _read_only(reader)
    return reader


def _read_only(connection: apsw.Connection) -> None:
    """Refuse writes, and read from mapped memory, of which no page cache holds a copy."""
    connection.execute(f"PRAGMA query_only=ON; PRAGMA mmap_size={MMAP_BYTES}").fetchall()


def _with_writers(
    path: Path, connect: _Connect, busy: Callable[[int], bool]
) -> apsw.Connection | None:
    """A connection for a file that others may be writing; None where nobody can be."""
    reader = connect(str(path), apsw.SQLITE_OPEN_READONLY, busy)
    if _can_use_wal(reader):
        return reader
    reader.close()
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise StoreUnavailable(
            f"{path}: the newest records are in {log.name}, which can only be read by someone "
            "who may write the folder; open the store once with such rights"
        )
    return None  # there is no log, and the folder cannot hold one


def _is_new(connection: apsw.Connection, path: Path) -> bool:
    """True for an empty database. Raises NotAStore and StoreTooNew."""
    # Tables first, identity second. Another process that creates the store in between commits both
    # together; read the other way round, its tables would lack an identity and pass for another
    # program's.
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    identity = connection.pragma("application_id")
    if identity == APPLICATION_ID:
        version = connection.pragma("user_version")
        if not isinstance(version, int) or version > SCHEMA_VERSION:
            raise StoreTooNew(
                f"{path}: expected schema version {SCHEMA_VERSION} or older, found {version}: a "
                "later release of eventctx wrote it; upgrade eventctx"
            )
        return False
    if identity or tables != [(0,)]:
        raise not_a_store(path, "another program's SQLite database")
    return True


def _create(connection: apsw.Connection, path: Path, lock_timeout: float) -> None:
    connection.execute("PRAGMA page_size=4096").fetchall()
    _set_wal(connection, path, lock_timeout)
    connection.execute("BEGIN IMMEDIATE")
    if _is_new(connection, path):  # another process may have been faster
        connection.execute(
            f"{TABLES} PRAGMA application_id={APPLICATION_ID};PRAGMA user_version={SCHEMA_VERSION}"
        ).fetchall()
    connection.execute("COMMIT")


def _set_wal(connection: apsw.Connection, path: Path, lock_timeout: float) -> None:
    deadline = time.monotonic() + lock_timeout
    while True:
        try:
            mode = connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            # SQLite does not call the busy handler here: it cannot wait while it changes the mode.
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.005)
            continue
        if mode != "wal":
            raise StoreUnavailable(
                f"{path}: expected a file system on which SQLite can use a write-ahead log, found "
                f"one that only allows journal mode {mode!r}; put the store on a local disk"
            )
        return


def _configure(
    connection: apsw.Connection, path: Path, durability: Durability, lock_timeout: float
) -> None:
    _set_wal(connection, path, lock_timeout)
    connection.execute(
        f"PRAGMA synchronous={durability};"
        "PRAGMA fullfsync=ON; PRAGMA checkpoint_fullfsync=ON;"
        # Bytes that were erased, or moved to another page, must not stay legible in the file.
        "PRAGMA secure_delete=ON;"
        "PRAGMA foreign_keys=ON;"
        f"PRAGMA journal_size_limit={64 * 2**20}"
    ).fetchall()
    # So that a file that was in another mode has its log when the log's identity is noted.
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
