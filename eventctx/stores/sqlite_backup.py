"""A copy of a store that others go on writing to, made by SQLite's backup API.

The copying connection is one of its own that holds one read transaction from the first page to the
last. So the copy is the store as it was at one moment; commits of this process or another neither
wait for it nor begin it anew (https://sqlite.org/c3ref/backup_finish.html). The reader's connection
would not do: while it held that transaction, no read would see what was written meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from eventctx.errors import EventctxError, StoreUnavailable
from eventctx.stores.new_file import new_file
from eventctx.stores.sqlite_errors import translated
from eventctx.stores.sqlite_shared import SharedFile

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

    Errors name ``path`` for damage, and ``target`` for what cannot be written. Raises as
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
        raise _explained(error, path, target, destination.system_errno) from error
    finally:
        destination.close(True)


def _explained(error: apsw.Error, path: Path, target: Path, system_errno: int) -> EventctxError:
    damaged = isinstance(error, apsw.CorruptError | apsw.NotADBError)
    return translated(error, path if damaged else target, system_errno)
