"""One set of connections and threads for each SQLite file, shared by all its users in a process.

POSIX drops every lock that a process holds on a file as soon as the process closes any descriptor
of it. SQLite keeps its own descriptors from doing that, so nothing in this process may open the
file of a store but SQLite, and a test reads the locks to see it.

Invariants: a file that can be written is in ``_open`` under its identity while it has users. An
object of a process is never used in a process that was forked from it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

import apsw

from eventctx.errors import EventctxError, StoreUnavailable
from eventctx.stores.ack import Bell, settle
from eventctx.stores.sqlite_errors import read_only, translate
from eventctx.stores.sqlite_queries import Queries
from eventctx.stores.sqlite_schema import (
    Durability,
    LockWait,
    Opened,
    check_path,
    open_file,
    open_for_reading,
)
from eventctx.stores.sqlite_writer import Writer
from eventctx.stores.threads import Job, ReadWork, StoreThreads, closed_error, forked_error


class FileIdentity(NamedTuple):
    """The device and inode of a file: while it is open, no other file has them."""

    device: int
    inode: int

    @classmethod
    def of(cls, path: Path | str) -> FileIdentity | None:
        """The identity of the file at ``path``; None if there is none."""
        try:
            found = os.stat(path)  # noqa: PTH116 - a Path takes three times as long, for every commit
        except OSError:
            return None
        return cls(found.st_dev, found.st_ino)


POLL_SECONDS = 0.015
"""Seconds between two looks for commits of other processes, for subscriptions."""


class FileReader(ReadWork):
    """Runs functions of ``Queries``.

    While there are watchers, it calls ``changed`` in its thread after commits of any connection.
    """

    def __init__(
        self, connection: apsw.Connection, path: Path, changed: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._path = path
        self._changed = changed
        self._queries = Queries(connection)
        self._watchers = 0
        self._watchers_lock = threading.Lock()
        self._seen, self._next_poll = -1, 0.0

    def watch(self, change: int) -> None:
        """Add (1) or remove (-1) a watcher. This takes effect with the next job."""
        with self._watchers_lock:
            self._watchers += change

    @property
    def pause(self) -> float | None:
        """While there are watchers, the time between two looks."""
        return POLL_SECONDS if self._watchers else None

    def answer(self, job: Job) -> None:
        """Run a query, and settle its ack."""
        try:
            outcome = (job.ack, job.function(self._queries, *job.args), None)
        except Exception as error:
            failure = translate(error, self._path, self._connection.system_errno)
            settle([(job.ack, None, failure)])
        else:
            settle([outcome])

    def idle(self) -> None:
        """Look for commits, if it is time and there are watchers."""
        if not self._watchers or (now := time.monotonic()) < self._next_poll:
            return
        self._next_poll = now + POLL_SECONDS
        try:
            version = self._queries.data_version()
        except apsw.Error:
            return  # locked or damaged: the next read reports it to its caller
        if version != self._seen:
            self._seen = version
            self._changed()

    def stopping(self) -> None:
        """Change nothing: a read of a file ends by itself."""

    def close(self) -> None:
        """Close the connection."""
        self._connection.close(True)


_LAST = "SELECT max(position) FROM records WHERE stream=(SELECT id FROM streams WHERE name=?)"


class Peek:
    """The last positions of streams, read in the caller's own thread.

    A reader thread answers in about 100 µs, most of which is waiting for a thread. This question
    precedes every answer from memory and takes one step in an index, so it has a connection of its
    own, which ``connect`` opens for the first question.

    Safe to use from several threads. It waits neither for a lock of the database nor for another
    thread, and has no answer instead (None).
    """

    def __init__(self, connect: Callable[[], apsw.Connection]) -> None:
        self._connect = connect
        # Held for some 20 µs; an SQLite connection refuses a second thread in the meantime.
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._closed = False

    def head(self, stream: str) -> int | None:
        """The stream's last position, -1 without records; None where it cannot be told now."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._closed:
                return None
            if self._connection is None:
                self._connection = self._connect()
            ((last,),) = self._connection.execute(_LAST, (stream,)).fetchall()
        except (apsw.Error, EventctxError):
            return None  # locked, damaged or gone: the reader reports it to the caller
        finally:
            self._lock.release()
        return -1 if last is None else int(last)

    def close(self) -> None:
        """Close the connection; there is no answer from here on."""
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(True)


class SharedFile:
    """The connections and threads of one open file. Made by ``acquire``, ended by ``release``."""

    def __init__(self, opened: Opened, path: Path) -> None:
        self.path = path
        self.users = 1
        self.durability: Durability = "normal"
        """The strongest durability that any user requested."""
        self.bell = Bell()
        self._peek = Peek(self._connect_to_peek)
        self._connection = opened.writer
        self._connections = [one for one in opened[:2] if one is not None]
        self._files = _identities(path)
        self.reading = FileReader(opened.reader, path, self.bell.ring)
        self._writing = (
            None
            if opened.writer is None
            else Writer(opened.writer, path, opened.lock, self.bell.ring, self.check_place)
        )
        self.threads = StoreThreads(
            str(path),
            path.name,
            self._writing,
            lambda: self.reading,
            self.bell,
            partial(read_only, path),
        )
        _made.add(self)

    @property
    def writable(self) -> bool:
        """Whether this process may write the file."""
        return self._writing is not None

    @property
    def identity(self) -> FileIdentity | None:
        """The identity of the database file that was opened."""
        return self._files[str(self.path)]

    def peek(self, stream: str) -> int | None:
        """The stream's last position, without a wait; see ``Peek.head``."""
        return None if self.threads.forked else self._peek.head(stream)

    def _connect_to_peek(self) -> apsw.Connection:
        connection = open_for_reading(self.path, lock_timeout=0.0)
        # Known to ``after_fork``: a child must not close it.
        self._connections.append(connection)
        return connection

    def strengthen(self, durability: Durability, lock_timeout: float) -> None:
        """Apply the settings of the most demanding user to all."""
        if durability == "full":
            self.durability = durability
        if self._writing is not None:
            self._writing.strengthen(durability, lock_timeout)

    def check_place(self) -> None:
        """Raise StoreUnavailable if the file or its log is no longer the one that was opened.

        Records written from then on would be in files that no process will find.
        """
        for path, opened in self._files.items():
            found = FileIdentity.of(path)
            if found != opened:
                happened = "was removed" if found is None else "was replaced by another file"
                raise StoreUnavailable(
                    f"{path}: expected the file that was opened, but it {happened} since; nothing "
                    "more is written. Put the file back, or close the store and open it again"
                )

    def keep_open(self) -> None:
        """Count one more user, which has to call ``release``.

        Raises StoreUnavailable in a forked process, and when the last user is gone.
        """
        if self.threads.forked:
            raise forked_error(self.path)
        with _lock:
            if not self.users:
                raise closed_error(self.path)
            self.users += 1

    @contextmanager
    def another_reader(self) -> Iterator[apsw.Connection]:
        """A connection apart from the reader's, for one thread; the file stays open meanwhile.

        Raises as ``open_for_reading``, and StoreUnavailable if the file was replaced.
        """
        self.keep_open()
        try:
            connection = open_for_reading(self.path)
            # Known to ``after_fork``: a child must not close it.
            self._connections.append(connection)
            try:
                if self.writable:
                    self.check_place()
                yield connection
            finally:
                self._connections.remove(connection)
                connection.close(True)
        finally:
            release(self)

    def shut(self) -> None:
        """Run the queued jobs, end the threads, close the connections. Blocks."""
        if self.threads.forked:
            return
        self.threads.stop()
        self._peek.close()
        if self._connection is None:
            return
        try:
            self.check_place()
        except StoreUnavailable:
            # The last connection removes the log by its name, which may be another store's now.
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        # The writer closes last: the last connection moves the log into the file, and removes
        # the log.
        self._connection.close(True)

    def after_fork(self) -> None:
        """Keep a forked child from closing connections.

        The parent's writer thread may have been inside SQLite, so closing could wait for ever.
        """
        import ctypes  # loading it takes 3 ms, and few programs fork

        for connection in self._connections:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def acquire(
    path: Path,
    *,
    durability: Durability,
    create: bool,
    lock_timeout: float,
    read_only: bool = False,
) -> SharedFile:
    """The open file at ``path``, opened unless this process has it open already. Blocks.

    With ``read_only`` it is opened without a writer, and no other setting of it changes.

    Raises as ``open_file``, and StoreUnavailable in a process that was forked from one
    that has the file open.
    """
    path = path.absolute()
    check_path(path, create)
    known = _find_open(path)
    if read_only:
        return known or _for_reading(path, lock_timeout)
    if known is None:
        place, opened = open_file(
            path, durability=durability, create=create, lock_timeout=lock_timeout
        )
        made = SharedFile(opened, place)
        known = _register(made)
        if known is not made:
            made.shut()
    known.strengthen(durability, lock_timeout)
    return known


def _for_reading(path: Path, lock_timeout: float) -> SharedFile:
    reader = open_for_reading(path, lock_timeout=lock_timeout)
    return SharedFile(Opened(None, reader, LockWait(lock_timeout)), path)


def release(file: SharedFile) -> None:
    """Give a file back; its last user shuts it. Blocks."""
    with _lock:
        file.users -= 1
        if file.users:
            return
        if file.identity is not None and _open.get(file.identity) is file:
            del _open[file.identity]
    file.shut()


_lock = threading.Lock()
_open: dict[FileIdentity, SharedFile] = {}
_made: WeakSet[SharedFile] = WeakSet()
"""All files of this process, those opened for reading alone included."""
_inherited: set[FileIdentity] = set()


def _find_open(path: Path) -> SharedFile | None:
    identity = FileIdentity.of(path)
    if identity in _inherited:
        raise forked_error(path)
    with _lock:
        found = None if identity is None else _open.get(identity)
        if found is not None:
            found.users += 1
        return found


def _register(made: SharedFile) -> SharedFile:
    """``made``, or the file that another thread opened meanwhile."""
    identity = made.identity
    # A file without write permission is not shared: rights may change, and the next user may write.
    if identity is None or not made.writable:
        return made
    with _lock:
        known = _open.setdefault(identity, made)
        if known is not made:
            known.users += 1
        return known


def _identities(path: Path) -> dict[str, FileIdentity | None]:
    """The identities of the database file and of its log, by their paths."""
    return {name: FileIdentity.of(name) for name in (str(path), f"{path}-wal")}


def _renew() -> None:
    global _lock
    _lock = threading.Lock()
    for file in list(_made):
        file.after_fork()
    _inherited.update(_open)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
