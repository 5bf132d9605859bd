"""The losses beside a store in SQLite: a file of its own, made only when there is one to write.

A healthy store has none, and deleting it loses nothing but the counts. A connection lives for one
call: losses are rare, and no lock or file descriptor is left to a child that the process forks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import apsw

from eventctx.errors import NotAStore, StoreTooNew
from eventctx.log.hook_failures import Loss
from eventctx.stores.sqlite_errors import translated
from eventctx.stores.sqlite_schema import LockWait

SUFFIX: Final = "-losses"
APPLICATION_ID: Final = 0x4543544C  # "ECTL"
SCHEMA_VERSION: Final = 1
_RACES: Final = 3
"""How often another process may take the file away while it is being opened."""

_TABLE: Final = """
CREATE TABLE losses(
  handler TEXT NOT NULL, kind TEXT NOT NULL, count INTEGER NOT NULL, last INTEGER NOT NULL,
  PRIMARY KEY (handler, kind)) STRICT, WITHOUT ROWID
"""
_ADD: Final = """
INSERT INTO losses(handler, kind, count, last) VALUES(?, ?, ?, ?)
ON CONFLICT(handler, kind) DO UPDATE
SET count = count + excluded.count, last = max(last, excluded.last)
"""


class SqliteLosses:
    """A ``LossBook`` in the file ``STORE-losses``, for any number of processes.

    ``lock_timeout``: seconds to wait while another process writes.
    """

    def __init__(self, store: Path, *, lock_timeout: float = 2.0) -> None:
        self._store = store
        self._lock_timeout = lock_timeout
        self.path = store.with_name(store.name + SUFFIX)

    @property
    def place(self) -> Hashable:
        """The file's name, links resolved."""
        return os.path.realpath(self.path)

    def add(self, losses: Sequence[Loss]) -> None:
        """See ``LossBook.add``. Makes the file, for those alone who may read the store.

        Raises StoreUnavailable (locked, or a folder that may not be written), StoreFull,
        StoreReadOnly, NotAStore (another program's file), StoreTooNew.
        """
        if not losses:
            return
        rows = [(_storable(one.handler), one.kind, one.count, one.last) for one in losses]
        with self._opened(create=True) as connection:
            connection.execute("BEGIN IMMEDIATE").fetchall()
            if self._identity(connection) == (0, 0):
                self._lay_out(connection)
            connection.executemany(_ADD, rows)
            connection.execute("COMMIT").fetchall()

    def read(self) -> tuple[Loss, ...]:
        """See ``LossBook.read``. Raises StoreUnavailable, NotAStore, StoreTooNew."""
        if not self.path.exists():
            return ()
        with self._opened(create=False) as connection:
            if self._identity(connection) == (0, 0):
                return ()  # its maker has not come further yet
            rows: Any = connection.execute(
                "SELECT handler, kind, count, last FROM losses ORDER BY handler, kind"
            )
            return tuple([Loss(*row) for row in rows])

    @contextmanager
    def _opened(self, create: bool) -> Iterator[apsw.Connection]:
        connection: apsw.Connection | None = None
        try:
            connection = self._connect(create)
            connection.set_busy_handler(LockWait(self._lock_timeout))
            # No write-ahead log: its files would outlive the one that somebody deletes. Nobody
            # waits for counts to survive a power cut.
            connection.execute("PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY").fetchall()
            yield connection
        except (apsw.Error, OSError) as error:
            said = 0 if connection is None else connection.system_errno
            raise translated(error, self.path, said) from error
        finally:
            if connection is not None:
                with suppress(apsw.Error):
                    connection.close(True)

    def _connect(self, create: bool) -> apsw.Connection:
        # Also to read: only who may write can undo what a killed writer left half done.
        flags = apsw.SQLITE_OPEN_READWRITE
        if not create:
            return apsw.Connection(str(self.path), flags=flags)
        for _ in range(_RACES):
            self._make()
            with suppress(apsw.CantOpenError):
                return apsw.Connection(str(self.path), flags=flags)
        return apsw.Connection(str(self.path), flags=flags)

    def _make(self) -> None:
        try:
            rights = stat.S_IMODE(self._store.stat().st_mode)
        except FileNotFoundError:
            rights = 0o600
        with suppress(OSError):  # there already, or SQLite will say why not
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, rights & 0o666))

    def _identity(self, connection: apsw.Connection) -> tuple[int, int]:
        """Which file it is and of which version; (0, 0) for an empty one."""
        # In this order, as another process may lay it out meanwhile, all at once.
        tables = connection.execute("SELECT 1 FROM sqlite_schema").fetchall()
        version = connection.pragma("user_version")
        found = (connection.pragma("application_id"), version)
        if found[0] == APPLICATION_ID:
            if found[1] > SCHEMA_VERSION:
                raise StoreTooNew(
                    f"{self.path}: expected losses of version {SCHEMA_VERSION} or less, found "
                    f"{found[1]}; use a newer eventctx, or delete the file, which holds counts only"
                )
            return found
        if found != (0, 0) or tables:
            raise NotAStore(
                f"{self.path}: expected the losses of the store, or nothing, found another "
                "program's database; move it away"
            )
        return found

    def _lay_out(self, connection: apsw.Connection) -> None:
        connection.execute(_TABLE).fetchall()
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", SCHEMA_VERSION)


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
