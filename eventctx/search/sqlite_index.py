"""A full-text index in a SQLite file in the store's folder, or in memory.

The file is a cache: ``<store file>.eventctx-recall``. It may be deleted at any time, also while a
process uses it; a damaged one is replaced. It holds words and addresses, no texts. If no file can
be written, or somebody else's has that name, the index is kept in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw

from eventctx.errors import StoreUnavailable
from eventctx.search.index import Document, Gone, Hit, IndexLost, Mark, Place, Segment, Term
from eventctx.search.sqlite_index_file import MEMORY, REFUSED, IndexFile
from eventctx.stores.sqlite_errors import translate

T = TypeVar("T")

PARTS_WEIGHT = 0.5
"""The weight of a match in the parts of an identifier; a match in the text has 1."""

_DAMAGE = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.ConstraintError)

# The error of a process whose file was deleted while it wrote: at the end it deletes its journal,
# which may be gone, or be the journal of the new file of that name.
_JOURNAL_GONE = apsw.SQLITE_IOERR_DELETE_NOENT


class SqliteTextIndex:
    """``TextIndex`` on one connection, which the threads of this process use one at a time.

    The first use opens or creates the file. Several processes may fill one file at once; a call
    that does not get the lock in ``lock_timeout`` seconds raises StoreUnavailable.
    """

    def __init__(
        self,
        store: Path | None,
        *,
        version: int = 1,
        lock_timeout: float = 5.0,
        read_only: bool = False,
    ) -> None:
        """``store`` is the store's own file; None keeps the index in memory.

        ``version`` is that of the documents; an index of another version is replaced. With
        ``read_only`` it is a temporary copy of the file, and the file stays as it is.
        """
        self._file = IndexFile(store, version, lock_timeout, read_only=read_only)
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._closed = False

    @property
    def path(self) -> Path | None:
        """The path of the index; None if it is in memory."""
        return None if self._file.path == MEMORY else self._file.path

    def exists(self) -> bool:
        if self._connection is not None:
            return True
        return self._file.path != MEMORY and self._file.path.exists()

    def mark(self) -> Mark | None:
        return self._run(_mark, fresh=True)

    def extend(
        self,
        after: Mark | None,
        to: Mark,
        documents: Sequence[Document],
        gone: Sequence[Gone] = (),
        deleted: Sequence[str] = (),
    ) -> bool:

        def write(connection: apsw.Connection) -> bool:
            if _mark(connection) != after:
                return False
            _insert(connection, documents)
            _forget(connection, gone)
            _remove(connection, deleted)
            connection.execute("INSERT OR REPLACE INTO mark VALUES(1, ?, ?)", to).fetchall()
            return True

        return self._run(write, writes=True)

    def forget(self, gone: Sequence[Gone]) -> None:
        self._run(lambda connection: _forget(connection, gone), writes=True)

    def following(self, segments: Sequence[Segment]) -> int:

        def last(connection: apsw.Connection, segment: Segment) -> int:
            sql = (
                "SELECT number FROM messages WHERE stream=(SELECT id FROM streams WHERE name=?) "
                "AND position BETWEEN ? AND ? ORDER BY position DESC, idx DESC LIMIT 1"
            )
            return _value(connection, sql, segment, -1)

        return self._run(lambda connection: 1 + max(last(connection, one) for one in segments))

    def find(self, segments: Sequence[Segment], first: int, last: int) -> list[Place]:

        def read(connection: apsw.Connection) -> list[Place]:
            found: dict[int, Place] = {}
            for stream, begin, end in segments:
                rows = connection.execute(
                    "SELECT position, idx, number, time FROM messages "
                    "WHERE stream=(SELECT id FROM streams WHERE name=?) "
                    "AND number BETWEEN ? AND ? AND position BETWEEN ? AND ?",
                    (stream, first, last, begin, end),
                )
                for row in rows:
                    place = Place(stream, *cast(tuple[int, int, int, int], row))
                    found.setdefault(place.number, place)
            return [found[number] for number in sorted(found)]

        return self._run(read)

    def search(
        self, terms: Sequence[Term], segments: Sequence[Segment] | None, limit: int, *, every: bool
    ) -> list[Hit]:
        if not terms:
            return []
        expression = _expression(terms, every=every)
        if segments is None:
            return self._run(lambda connection: _everywhere(connection, expression, limit))
        return self._run(lambda connection: _within(connection, expression, segments, limit))

    def count(
        self, terms: Sequence[Term], segments: Sequence[Segment] | None, *, every: bool
    ) -> int:
        if not terms:
            return 0
        expression = _expression(terms, every=every)
        return self._run(lambda connection: _count(connection, expression, segments))

    def clear(self) -> None:
        with self._lock:
            self._check_open()
            self._replace()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    # -- one connection, although its file may be deleted, damaged or replaced -------------------

    def _run(
        self,
        function: Callable[[apsw.Connection], T],
        *,
        writes: bool = False,
        fresh: bool = False,
    ) -> T:
        """Run ``function``, in a transaction if it ``writes``.

        ``fresh``: first open the file again if another one has taken its name.
        """
        with self._lock:
            self._check_open()
            if fresh and self._connection is not None and self._file.was_replaced():
                self._disconnect()
            if self._connection is None:
                self._connection = self._file.open()
            connection = self._connection
            try:
                if not writes:
                    return function(connection)
                connection.execute("BEGIN IMMEDIATE").fetchall()
                done = function(connection)
                connection.execute("COMMIT").fetchall()
                return done
            except apsw.Error as error:
                raise self._failure(connection, error) from error
            except BaseException:
                _roll_back(connection)
                raise

    def _failure(self, connection: apsw.Connection, error: apsw.Error) -> Exception:
        system_errno = connection.system_errno
        _roll_back(connection)
        if self._file.was_replaced() or getattr(error, "extendedresult", 0) == _JOURNAL_GONE:
            # The error concerns a file that no process will open again.
            self._disconnect()
            return IndexLost(str(error))
        if isinstance(error, REFUSED):
            self._disconnect()
            self._file.keep_in_memory()
            return IndexLost(str(error))
        if isinstance(error, _DAMAGE):
            self._replace()
            return IndexLost(str(error))
        return translate(error, Path(self._file.path), system_errno)

    def _replace(self) -> None:
        self._disconnect()
        self._file.remove()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(apsw.Error):
                self._connection.close(True)
            self._connection = None

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the search index is closed; open the store again")


def _roll_back(connection: apsw.Connection) -> None:
    with suppress(apsw.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK").fetchall()


# -- statements ----------------------------------------------------------------------------------


def _mark(connection: apsw.Connection) -> Mark | None:
    rows = connection.execute("SELECT position, id FROM mark").fetchall()
    return Mark(*cast(tuple[int, bytes], rows[0])) if rows else None


def _value(connection: apsw.Connection, sql: str, bindings: Sequence[Any], default: int) -> int:
    rows = connection.execute(sql, tuple(bindings)).fetchall()
    return default if not rows or rows[0][0] is None else cast(int, rows[0][0])


def _insert(connection: apsw.Connection, documents: Sequence[Document]) -> None:
    streams = {document.place.stream for document in documents}
    connection.executemany(
        "INSERT OR IGNORE INTO streams(name) VALUES(?)", [(name,) for name in sorted(streams)]
    )
    ids = {
        name: _value(connection, "SELECT id FROM streams WHERE name=?", (name,), -1)
        for name in streams
    }
    first = 1 + _value(connection, "SELECT max(id) FROM messages", (), 0)
    connection.executemany(
        "INSERT INTO messages VALUES(?,?,?,?,?,?)",
        [
            (row, ids[place.stream], *place[1:])
            for row, (place, _, _) in enumerate(documents, first)
        ],
    )
    connection.executemany(
        "INSERT INTO words(rowid, text, parts) VALUES(?,?,?)",
        [(row, text, parts) for row, (_, text, parts) in enumerate(documents, first) if text],
    )


def _forget(connection: apsw.Connection, gone: Sequence[Gone]) -> None:
    before = connection.total_changes()
    connection.executemany(
        "DELETE FROM words WHERE rowid=(SELECT id FROM messages WHERE "
        "stream=(SELECT id FROM streams WHERE name=?) AND position=? AND idx=?)",
        gone,
    )
    _merge(connection, before)


def _remove(connection: apsw.Connection, deleted: Sequence[str]) -> None:
    before = connection.total_changes()
    names = [(name,) for name in deleted]
    of_stream = "stream=(SELECT id FROM streams WHERE name=?)"
    connection.executemany(
        f"DELETE FROM words WHERE rowid IN (SELECT id FROM messages WHERE {of_stream})",  # noqa: S608
        names,
    )
    connection.executemany(f"DELETE FROM messages WHERE {of_stream}", names)  # noqa: S608
    connection.executemany("DELETE FROM streams WHERE name=?", names)
    _merge(connection, before)


def _merge(connection: apsw.Connection, before: int) -> None:
    """Merge the pages of all words if rows were deleted since there were ``before`` changes."""
    if connection.total_changes() > before:
        # The words of a deleted row stay legible in the file until its pages are merged.
        connection.execute("INSERT INTO words(words) VALUES('optimize')").fetchall()


def _expression(terms: Sequence[Term], *, every: bool) -> str:
    return (" " if every else " OR ").join(_quote(term) for term in terms)


def _quote(term: Term) -> str:
    text = term.text.replace('"', " ")
    return f'"{text}"*' if term.prefix else f'"{text}"'


_RANKED = (
    f"SELECT rowid AS row, bm25(words, 1.0, {PARTS_WEIGHT}) AS cost FROM words "  # noqa: S608
    "WHERE words MATCH ?"
)
_ANSWER = (
    "SELECT streams.name, position, idx, number, time, -cost FROM found "
    "CROSS JOIN messages ON messages.id = row JOIN streams ON streams.id = messages.stream "
)


def _everywhere(connection: apsw.Connection, expression: str, limit: int) -> list[Hit]:
    sql = (
        f"WITH found AS MATERIALIZED ({_RANKED} ORDER BY cost, rowid DESC LIMIT ?) {_ANSWER}"
        "ORDER BY cost, row DESC"
    )
    return _hits(connection.execute(sql, (expression, limit)))


def _within(
    connection: apsw.Connection, expression: str, segments: Sequence[Segment], limit: int
) -> list[Hit]:
    ends = [row for segment in segments for row in _rows_of(connection, segment)]
    if not ends:
        return []
    sql = (
        f"WITH {_parts(segments)}, "
        f"found AS MATERIALIZED ({_RANKED} AND rowid BETWEEN ? AND ?) {_ANSWER}{_IN_PARTS}"
        "ORDER BY cost, row DESC LIMIT ?"
    )
    values = [value for segment in segments for value in segment]
    return _hits(connection.execute(sql, (*values, expression, min(ends), max(ends), limit)))


def _count(connection: apsw.Connection, expression: str, segments: Sequence[Segment] | None) -> int:
    if segments is None:
        return _value(connection, "SELECT count(*) FROM words WHERE words MATCH ?", [expression], 0)
    sql = (
        f"WITH {_parts(segments)} SELECT count(*) FROM words "  # noqa: S608
        f"CROSS JOIN messages ON messages.id = words.rowid {_IN_PARTS}WHERE words MATCH ?"
    )
    values = [value for segment in segments for value in segment]
    return _value(connection, sql, (*values, expression), 0)


_IN_PARTS = "JOIN parts ON parts.stream = messages.stream AND position BETWEEN first AND last "


def _parts(segments: Sequence[Segment]) -> str:
    rows = ",".join(["((SELECT id FROM streams WHERE name=?),?,?)"] * len(segments))
    return f"parts(stream, first, last) AS (VALUES {rows})"


def _rows_of(connection: apsw.Connection, segment: Segment) -> list[int]:
    """The first and the last row id of a segment; row ids rise with positions. Empty if none."""
    sql = (
        "SELECT id FROM messages WHERE stream=(SELECT id FROM streams WHERE name=?) "
        "AND position BETWEEN ? AND ? ORDER BY position {0}, idx {0} LIMIT 1"
    )
    found = [_value(connection, sql.format(order), segment, 0) for order in ("ASC", "DESC")]
    return [row for row in found if row]


def _hits(rows: apsw.Cursor) -> list[Hit]:
    return [
        Hit(Place(stream, position, index, number, time), score)
        for stream, position, index, number, time, score in cast(Any, rows.fetchall())
    ]
