"""The full-text search of a PostgreSQL server as an index, in the store's own schema.

Its tables are caches (``stores/postgres/recall_schema.py``): a crash of the server empties them,
and so may anybody. They hold words and addresses, no texts. Every role has its own index there,
because every role may read other sessions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from eventctx.errors import StoreUnavailable
from eventctx.search.index import Document, Gone, Hit, IndexLost, Mark, Place, Segment, Term
from eventctx.search.postgres_ranking import count, rank, vectors
from eventctx.stores.postgres import encoding
from eventctx.stores.postgres.connections import ServerConnection
from eventctx.stores.postgres.encoding import INT4S, INT8, INT8S, TEXTS, int8, text
from eventctx.stores.postgres.errors import (
    ConnectionLost,
    Refused,
    begins_again,
    loses_connection,
    translate,
)
from eventctx.stores.postgres.schema import WORDS_TABLES
from eventctx.stores.postgres.scrubbing import note_erasure, scrub
from eventctx.stores.postgres.store import PostgresStore

T = TypeVar("T")

# The plans that the log needs use no bitmaps, and the index of words has nothing else.
_SETTINGS: Final = "SET enable_bitmapscan = on; SET enable_seqscan = on; SET plan_cache_mode = auto"

_PAUSE: Final = 0.2

_LOCK: Final = """
SELECT pg_advisory_xact_lock(
  hashtextextended('eventctx recall ' || current_user, 'eventctx.meta'::regclass::oid::bigint))
"""
_MARK: Final = """
SELECT position, event, version FROM eventctx.recall_marks WHERE tenant = current_user
"""
_SET_MARK: Final = """
INSERT INTO eventctx.recall_marks(version, position, event, messages, length)
VALUES($1, $2, $3, $4, $5)
ON CONFLICT (tenant) DO UPDATE SET version = excluded.version, position = excluded.position,
  event = excluded.event, messages = recall_marks.messages + excluded.messages,
  length = recall_marks.length + excluded.length
"""
_INSERT: Final = """
INSERT INTO eventctx.recall_messages
  (stream, position, index, number, time, length, pieces, words)
SELECT stream, position, index, number, time, length, pieces, words::tsvector
FROM unnest($1, $2, $3, $4, $5, $6, $7, $8) WITH ORDINALITY
  AS d(stream, position, index, number, time, length, pieces, words, place) ORDER BY place
"""
_INSERT_PIECES: Final = """
INSERT INTO eventctx.recall_pieces(message, piece, words)
SELECT m.id, p.piece, p.words::tsvector
FROM unnest($1, $2, $3, $4, $5) AS p(stream, position, index, piece, words)
JOIN eventctx.recall_messages m ON m.stream = p.stream AND m.position = p.position
  AND m.index = p.index AND m.tenant = current_user
"""
_FORGET: Final = """
WITH gone AS (
  UPDATE eventctx.recall_messages m SET words = NULL, pieces = 0, length = 0
  FROM (SELECT old.id, old.length FROM unnest($1, $2, $3) AS g(stream, position, index)
    JOIN eventctx.recall_messages old USING (stream, position, index)
    WHERE old.tenant = current_user AND old.pieces > 0) AS had
  WHERE m.id = had.id RETURNING m.id, had.length),
pieces AS (DELETE FROM eventctx.recall_pieces p USING gone WHERE p.message = gone.id)
UPDATE eventctx.recall_marks k SET messages = k.messages - had.messages,
  length = k.length - had.length
FROM (SELECT count(*) AS messages, sum(gone.length) AS length FROM gone) AS had
WHERE k.tenant = current_user AND had.messages > 0
"""
_REMOVE: Final = """
WITH gone AS (
  DELETE FROM eventctx.recall_messages WHERE stream = ANY($1) AND tenant = current_user
  RETURNING id, length, pieces),
pieces AS (DELETE FROM eventctx.recall_pieces p USING gone WHERE p.message = gone.id)
UPDATE eventctx.recall_marks k SET messages = k.messages - had.messages,
  length = k.length - had.length
FROM (SELECT count(*) FILTER (WHERE gone.pieces > 0) AS messages, sum(gone.length) AS length,
  count(*) AS places FROM gone) AS had
WHERE k.tenant = current_user AND had.places > 0
"""
_CLEAR: Final = """
WITH gone AS (DELETE FROM eventctx.recall_messages WHERE tenant = current_user RETURNING id),
pieces AS (DELETE FROM eventctx.recall_pieces p USING gone WHERE p.message = gone.id)
DELETE FROM eventctx.recall_marks WHERE tenant = current_user
"""
_FOLLOWING: Final = """
SELECT max(last.number) FROM unnest($1, $2, $3) AS s(stream, first, last)
CROSS JOIN LATERAL (SELECT m.number FROM eventctx.recall_messages m
  WHERE m.stream = s.stream AND m.position BETWEEN s.first AND s.last AND m.tenant = current_user
  ORDER BY m.position DESC, m.index DESC LIMIT 1) AS last
"""
_FIND: Final = """
SELECT DISTINCT ON (m.number) m.stream, m.position, m.index, m.number, m.time
FROM unnest($1, $2, $3) WITH ORDINALITY AS s(stream, first, last, place)
JOIN eventctx.recall_messages m ON m.stream = s.stream AND m.number BETWEEN $4 AND $5
  AND m.position BETWEEN s.first AND s.last AND m.tenant = current_user
ORDER BY m.number, s.place
"""
_FIND_TYPES: Final = (TEXTS, INT8S, INT8S, INT8, INT8)
_DAMAGE: Final = frozenset({"23505"})


class PostgresTextIndex:
    """``TextIndex`` on one connection, which the threads of this process use one at a time.

    The first use connects. Several processes may fill the index at once. A lost server is looked
    for again as long as the store itself would.
    """

    def __init__(self, store: PostgresStore, *, version: int = 1) -> None:
        """``version`` is that of the documents; an index of another version is replaced."""
        self._target = store.destination
        self._version = version
        self._patience = store.patience
        self._lock = threading.Lock()
        self._connection: ServerConnection | None = None
        self._closed = False

    def exists(self) -> bool:
        return self._run(lambda connection: bool(connection.rows(_MARK)))

    def mark(self) -> Mark | None:

        def read(connection: ServerConnection) -> Mark | None:
            found = connection.rows(_MARK)
            if found and found[0][2] != self._version:
                _clear(connection)
                return None
            return Mark(*found[0][:2]) if found else None

        return self._run(read)

    def extend(
        self,
        after: Mark | None,
        to: Mark,
        documents: Sequence[Document],
        gone: Sequence[Gone] = (),
        deleted: Sequence[str] = (),
    ) -> bool:

        def write(connection: ServerConnection) -> bool:
            with connection.transaction():
                connection.rows(_LOCK)
                found = connection.rows(_MARK)
                if (Mark(*found[0][:2]) if found else None) != after:
                    return False
                messages, length = _insert(connection, documents)
                connection.rows(
                    _SET_MARK,
                    (encoding.INT4, INT8, encoding.BYTEA, INT8, INT8),
                    (encoding.int4(self._version), int8(to.position), to.id, int8(messages),
                     int8(length)),
                )  # fmt: skip
                forgotten = _forget(connection, gone)
                removed = _remove(connection, deleted)
            if forgotten or removed:
                scrub(connection)
            return True

        return self._run(write)

    def forget(self, gone: Sequence[Gone]) -> None:

        def write(connection: ServerConnection) -> None:
            with connection.transaction():
                connection.rows(_LOCK)
                forgotten = _forget(connection, gone)
            if forgotten:
                scrub(connection)

        self._run(write)

    def following(self, segments: Sequence[Segment]) -> int:

        def read(connection: ServerConnection) -> int:
            ((last,),) = connection.rows(_FOLLOWING, (TEXTS, INT8S, INT8S), _of(segments))
            return 0 if last is None else int(last) + 1

        return self._run(read)

    def find(self, segments: Sequence[Segment], first: int, last: int) -> list[Place]:

        def read(connection: ServerConnection) -> list[Place]:
            values = (*_of(segments), int8(first), int8(last))
            return [_place(row) for row in connection.rows(_FIND, _FIND_TYPES, values)]

        return self._run(read)

    def search(
        self, terms: Sequence[Term], segments: Sequence[Segment] | None, limit: int, *, every: bool
    ) -> list[Hit]:
        within = None if segments is None else _of(segments)
        found = self._run(lambda connection: rank(connection, terms, within, limit, every=every))
        return [Hit(_place(row), row[5]) for row in found]

    def count(
        self, terms: Sequence[Term], segments: Sequence[Segment] | None, *, every: bool
    ) -> int:
        within = None if segments is None else _of(segments)
        return self._run(lambda connection: count(connection, terms, within, every=every))

    def clear(self) -> None:
        self._run(_clear)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._disconnect()

    def _run(self, function: Callable[[ServerConnection], T]) -> T:
        """Run ``function``, again on a new connection where the server was lost.

        Nothing is written twice: each compares the mark, or does what
        is done already.
        """
        until = time.monotonic() + self._patience
        with self._lock:
            while True:
                if self._closed:
                    raise StoreUnavailable("the search index is closed; open the store again")
                try:
                    if self._connection is None:
                        self._connection = ServerConnection(self._target)
                        self._connection.script(_SETTINGS)
                    return function(self._connection)
                except (ConnectionLost, Refused) as error:
                    self._give_up_or_pause(error, until)

    def _give_up_or_pause(self, error: ConnectionLost | Refused, until: float) -> None:
        place = "the search index" if self._connection is None else self._connection.place
        if isinstance(error, Refused) and error.code in _DAMAGE and self._connection is not None:
            _clear(self._connection)
            raise IndexLost(str(error)) from error
        if isinstance(error, ConnectionLost) or loses_connection(error):
            self._disconnect()
        elif not begins_again(error):
            raise translate(error, place)
        if time.monotonic() > until:
            raise translate(error, place)
        time.sleep(_PAUSE)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _of(segments: Sequence[Segment]) -> tuple[bytes, bytes, bytes]:
    return (
        encoding.blobs(TEXTS, [text(one.stream) for one in segments]),
        encoding.int8s([one.first for one in segments]),
        encoding.int8s([one.last for one in segments]),
    )


def _place(row: Sequence[object]) -> Place:
    stream, position, index, number, at = row[:5]
    return Place(encoding.from_text(stream), position, index, number, at)  # type: ignore[arg-type]


def _insert(connection: ServerConnection, documents: Sequence[Document]) -> tuple[int, int]:
    """Store messages; returns how many of them have words, and how many words those have."""
    if not documents:
        return 0, 0
    places = [document.place for document in documents]
    found = [vectors(document.text, document.parts) for document in documents]
    connection.rows(
        _INSERT,
        (TEXTS, INT8S, INT4S, INT8S, INT8S, INT4S, INT4S, TEXTS),
        (
            encoding.blobs(TEXTS, [text(place.stream) for place in places]),
            encoding.int8s([place.position for place in places]),
            encoding.int4s([place.index for place in places]),
            encoding.int8s([place.number for place in places]),
            encoding.int8s([place.time for place in places]),
            encoding.int4s([one.length for one in found]),
            encoding.int4s([len(one.pieces) for one in found]),
            encoding.blobs(
                TEXTS, [one.pieces[0].encode() if len(one.pieces) == 1 else None for one in found]
            ),
        ),
    )
    _insert_pieces(
        connection,
        [
            (place, number, piece)
            for place, one in zip(places, found, strict=True)
            if len(one.pieces) > 1
            for number, piece in enumerate(one.pieces)
        ],
    )
    return sum([one.length > 0 for one in found]), sum([one.length for one in found])


def _insert_pieces(connection: ServerConnection, pieces: Sequence[tuple[Place, int, str]]) -> None:
    if pieces:
        connection.rows(
            _INSERT_PIECES,
            (TEXTS, INT8S, INT4S, INT4S, TEXTS),
            (
                encoding.blobs(TEXTS, [text(place.stream) for place, _, _ in pieces]),
                encoding.int8s([place.position for place, _, _ in pieces]),
                encoding.int4s([place.index for place, _, _ in pieces]),
                encoding.int4s([number for _, number, _ in pieces]),
                encoding.blobs(TEXTS, [piece.encode() for _, _, piece in pieces]),
            ),
        )


def _forget(connection: ServerConnection, gone: Sequence[Gone]) -> bool:
    """Remove words, and return whether there were any."""
    if not gone:
        return False
    changed = connection.count(
        _FORGET,
        (TEXTS, INT8S, INT4S),
        (
            encoding.blobs(TEXTS, [text(one.stream) for one in gone]),
            encoding.int8s([one.position for one in gone]),
            encoding.int4s([one.index for one in gone]),
        ),
    )
    if changed:
        note_erasure(connection, WORDS_TABLES)
    return changed > 0


def _remove(connection: ServerConnection, deleted: Sequence[str]) -> bool:
    """Remove all messages of these streams, and return whether there were any."""
    if not deleted:
        return False
    names = encoding.blobs(TEXTS, [text(name) for name in deleted])
    changed = connection.count(_REMOVE, (TEXTS,), (names,)) > 0
    if changed:
        note_erasure(connection, WORDS_TABLES)
    return changed


def _clear(connection: ServerConnection) -> None:
    with connection.transaction():
        connection.rows(_LOCK)
        filled = connection.count(_CLEAR) > 0
        if filled:
            note_erasure(connection, WORDS_TABLES)
    if filled:
        scrub(connection)  # it takes no time, unless other roles have words there
