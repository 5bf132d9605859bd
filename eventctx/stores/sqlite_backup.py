"""Copies of a store that others go on writing, and their return in the place of a store.

A copy is made by SQLite's backup API on a connection of its own, which holds one read transaction
from the first page to the last. So the copy is the store as it was at one moment; commits of this
process or another neither wait for it nor begin it anew
(https://sqlite.org/c3ref/backup_finish.html). The reader's connection would not do: while it held
that transaction, no read would see later writes.

Invariant of a restore: at every moment one whole store, the old or the new one, has the name. The
old one gets a second name first, and then the new one takes the first name in one step. Meanwhile
SQLite's exclusive lock on the old file keeps everybody out. A process that waits for that lock has
opened the old file, and cannot write it afterwards: the file has no write-ahead log then, and in
that mode SQLite refuses to write a database that has lost its name.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import apsw

from eventctx.errors import EventctxError, InvalidSetting, NotAStore, StoreUnavailable
from eventctx.stores.sqlite_errors import not_a_store, refused_by_system, translate
from eventctx.stores.sqlite_schema import APPLICATION_ID, check_path, open_for_reading
from eventctx.stores.sqlite_shared import SharedFile

COMPANIONS: Final = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps with a database."""

_ASIDE: Final = ".before-restore-"

_STEP_PAGES: Final = 1024
"""Pages (of 4 KiB) that are copied between two looks whether to stop."""


def back_up(file: SharedFile, target: Path, stopped: Callable[[], bool]) -> None:
    """Copy an open store to the new file ``target``. Blocks.

    Raises InvalidSetting if there is something at ``target``, StoreFull, StoreReadOnly, and
    StoreUnavailable, also when ``stopped()`` became true.
    """
    target = target.absolute()
    # The reader first: from here on a store that is closed stays open for the copy.
    with file.another_reader() as source, new_file(target, "backup") as part:
        copy_database(source, file.path, part, target, stopped)


def copy_database(
    source: apsw.Connection,
    path: Path,
    part: Path,
    target: Path,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Copy all that ``source``, the database at ``path``, holds now into the empty file ``part``.

    Errors name ``path`` for damage, and ``target`` for a failed write. Raises as
    ``back_up`` does.
    """
    destination = apsw.Connection(str(part), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        # A copy that is not finished is thrown away, and a finished one is flushed at the end.
        destination.execute("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF").fetchall()
        source.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()
        with destination.backup("main", source, "main") as copying:
            while not copying.done:
                if stopped():
                    raise StoreUnavailable(f"{target}: the backup was stopped")
                copying.step(_STEP_PAGES)
        source.execute("COMMIT")
    except apsw.Error as error:
        raise _explain(error, path, target, destination.system_errno) from error
    finally:
        destination.close(True)


def _explain(error: apsw.Error, path: Path, target: Path, system_errno: int) -> EventctxError:
    damaged = isinstance(error, apsw.CorruptError | apsw.NotADBError)
    return translate(error, path if damaged else target, system_errno)


@contextmanager
def new_file(target: Path, setting: str) -> Iterator[Path]:
    """Give the path of an empty file in the folder of ``target``, for its owner alone.

    It gets the name ``target`` when the block ends without an error; else it is removed. A process
    that is killed leaves a file ``.NAME.….part``, and no ``target``. Errors call
    the target ``setting``.

    Raises InvalidSetting if there is something at ``target``, StoreFull, StoreReadOnly,
    StoreUnavailable.
    """
    check_free(target, setting)
    part = make_part(target)
    try:
        yield part
        flush(part)
        give_name(part, target, setting)
        flush(target.parent)
    except OSError as error:
        raise refused_by_system(error, target) from error
    finally:
        discard(part)


def check_free(target: Path, setting: str) -> None:
    """Raise InvalidSetting if there is something at ``target``, or a log that SQLite would read."""
    if os.path.isdir(target):  # noqa: PTH112 - says no where a path cannot be looked at
        raise InvalidSetting(f"{setting}: expected a new file, found the folder {target}")
    if os.path.lexists(target):
        raise _taken_error(target, setting)
    for ending in COMPANIONS:
        companion = target.with_name(target.name + ending)
        # SQLite would take the log of an earlier file of this name for that of the new one.
        if os.path.lexists(companion):
            raise InvalidSetting(
                f"{setting}: expected no file {companion}, which belongs to another database of "
                "that name; move it away, or choose another name"
            )


def make_part(target: Path) -> Path:
    """Make a new, empty, private file in the folder of ``target``. Raises as ``new_file`` does."""
    part = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise refused_by_system(error, target) from error
    return part


def discard(part: Path) -> None:
    """Remove an unfinished database and its companions; nothing need be there."""
    for ending in ("", *COMPANIONS):
        part.with_name(part.name + ending).unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk.

    Never to be called with a store's file that may be open: see ``sqlite_shared``.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def give_name(part: Path, target: Path, setting: str) -> None:
    """Give ``part`` its name, and never replace a file that appeared there meanwhile."""
    try:
        os.link(part, target)
    except FileExistsError as error:
        raise _taken_error(target, setting) from error
    except OSError:
        # A file system without links. The name was free when the copy began.
        check_free(target, setting)
        part.rename(target)


def _taken_error(target: Path, setting: str) -> InvalidSetting:
    return InvalidSetting(
        f"{setting}: expected a new file, but there is one at {target}; move it away, or choose "
        "another name"
    )


@contextmanager
def fetch_copy(backup: Path, store: Path) -> Iterator[Path]:
    """A private copy of ``backup`` in the folder of ``store``, removed at the block's end.

    Nothing is written to the backup or its folder. Raises NotAStore, StoreTooNew, StoreUnavailable,
    StoreFull, StoreReadOnly.
    """
    backup, store = backup.resolve(), store.resolve()
    check_path(backup, create=False)
    part = make_part(store)
    try:
        source = _open_untouched(backup)
        try:
            copy_database(source, backup, part, store)
        finally:
            source.close(True)
        yield part
    finally:
        discard(part)


def put_in_place(part: Path, store: Path, *, replace: bool) -> Path | None:
    """Give ``part``, a complete store in the same folder, the name of ``store``.

    Returns where the old store is now; None if there was none. Raises InvalidSetting if there is
    one and ``replace`` is false, StoreUnavailable if somebody has it open, NotAStore if it is
    another program's file, StoreReadOnly.
    """
    store = store.resolve()
    try:
        if not os.path.lexists(store):
            check_free(store, "store")
            flush(part)
            give_name(part, store, "store")
            flush(store.parent)
            return None
        if not replace:
            raise InvalidSetting(f"store: expected none, found one at {store}; it is not replaced")
        aside = store.with_name(
            f"{store.name}{_ASIDE}{time.strftime('%Y%m%dT%H%M%S', time.localtime())}"
        )
        _forget_interrupted(store)
        with _alone_with(store):
            _take_over_rights(store, part)
            flush(part)
            _keep_aside(store, aside)
            part.replace(store)
            flush(store.parent)
        return aside
    except OSError as error:
        raise refused_by_system(error, store) from error


def _open_untouched(backup: Path) -> apsw.Connection:
    """Open a file for reading, and leave no companions."""
    log = backup.with_name(backup.name + "-wal")
    if log.exists() and log.stat().st_size:
        return open_for_reading(backup)  # a store that is in use, or was not closed
    return open_for_reading(backup, immutable=True)


def _forget_interrupted(store: Path) -> None:
    """Remove the second name of the store itself, which a killed restore left."""
    for one in store.parent.glob(f"{_literal(store.name)}{_ASIDE}*"):
        if one.samefile(store):
            one.unlink()


def _literal(name: str) -> str:
    return "".join(f"[{one}]" if one in "*?[" else one for one in name)


@contextmanager
def _alone_with(store: Path) -> Iterator[None]:
    """Hold SQLite's exclusive lock on a store; no process gets it while another has it open.

    Every process that has a store open holds a shared lock on its file.
    """
    if not store.is_file():
        raise not_a_store(store, "a folder, a pipe or a device")
    try:
        held: apsw.Connection | apsw.VFSFile = _lock(store)
    except (apsw.NotADBError, apsw.CorruptError):
        held = _lock_unread(store)
    try:
        yield
    finally:
        if isinstance(held, apsw.Connection):
            held.close(True)
        else:
            held.xClose()


def _lock(store: Path) -> apsw.Connection:
    """A connection that holds the lock, after it moved the log into the file.

    Raises NotADBError or CorruptError of apsw for a file that SQLite cannot read.
    """
    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READWRITE)
    # Where the lock cannot be had, or the file not be read, the log is to stay as it is.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    try:
        # The lock first: else it would be free for a moment after the change of the mode.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=FULL").fetchall()
        _check_ours(connection, store)
        connection.execute("PRAGMA journal_mode=DELETE; BEGIN EXCLUSIVE; COMMIT").fetchall()
    except (apsw.NotADBError, apsw.CorruptError):
        connection.close(True)
        raise
    except apsw.Error as error:
        refused = _lock_error(error, store, connection.system_errno)
        connection.close(True)
        raise refused from error
    except NotAStore:
        connection.close(True)
        raise
    # Emptied by the commit, and of no use to the store that gets the name.
    for ending in COMPANIONS:
        store.with_name(store.name + ending).unlink(missing_ok=True)
    return connection


def _lock_unread(store: Path) -> apsw.VFSFile:
    """The same lock on a file that SQLite cannot read any more, without looking into it."""
    file = apsw.VFSFile("", str(store), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0])
    try:
        file.xLock(apsw.SQLITE_LOCK_SHARED)
        file.xLock(apsw.SQLITE_LOCK_EXCLUSIVE)
    except apsw.Error as error:
        file.xClose()
        raise _lock_error(error, store) from error
    return file


def _check_ours(connection: apsw.Connection, store: Path) -> None:
    identity = connection.pragma("application_id")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    if identity != APPLICATION_ID and (identity or tables != [(0,)]):
        raise not_a_store(store, "another program's SQLite database")


def _lock_error(error: apsw.Error, store: Path, system_errno: int = 0) -> EventctxError:
    if isinstance(error, apsw.BusyError):
        return StoreUnavailable(
            f"{store}: expected that nobody uses the store, but a program has it open; end that "
            "program, and try again"
        )
    return translate(error, store, system_errno)


def _take_over_rights(store: Path, part: Path) -> None:
    """Give the new file the owner and the mode of the old one."""
    found = store.stat()
    with suppress(PermissionError):  # only the owner's own groups, and root, can give a file away
        os.chown(part, found.st_uid, found.st_gid)
    part.chmod(stat.S_IMODE(found.st_mode))


def _keep_aside(store: Path, aside: Path) -> None:
    """Give the store a second name, and its log, if it could not be moved into the file."""
    os.link(store, aside)
    left = [one for one in COMPANIONS if store.with_name(store.name + one).exists()]
    for ending in left:
        os.link(store.with_name(store.name + ending), aside.with_name(aside.name + ending))
    flush(store.parent)
    # The new store would take them for its own.
    for ending in left:
        store.with_name(store.name + ending).unlink()
