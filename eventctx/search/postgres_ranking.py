"""The best matches of a search on a PostgreSQL server, by the measure of the index in a file: BM25.

The server's own measures know nothing of how rare a word is or how long a message. But for a single
word or phrase ``ts_rank_cd`` is the number of its places in a vector, each times its weight.

The words are cut here, by the same rule as a query's and as the index in a file has them, so that
every store finds the same messages. The server's own parser would take ``src/aaa.py`` for one word,
and fold letters by the locale of the database. A vector has room for 16,383 places and for 255
places of one word. A longer message is cut to several pieces, which overlap, so that a phrase
across a cut is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import Final, NamedTuple

from eventctx.search.documents import words
from eventctx.search.index import Term
from eventctx.stores.postgres import encoding
from eventctx.stores.postgres.connections import Rows, ServerConnection
from eventctx.stores.postgres.encoding import INT4, INT8, INT8S, TEXT, TEXTS

LONGEST_PHRASE: Final = 64
"""Words of a phrase that are compared; pieces of a message overlap by as many."""

_MOST_PLACES: Final = 16_000
_MOST_OF_A_WORD: Final = 250
_MOST_CHARACTERS: Final = 150_000
_LONGEST_WORD: Final = 500
_GAP: Final = 2  # no phrase reaches from the text into the parts of identifiers


class Vectors(NamedTuple):
    """A message as vectors; ``length`` is its number of words. Without words there are none."""

    pieces: list[str]
    length: int


class _Piece:
    """The places of words of a piece of a message."""

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self._places: dict[str, list[str]] = {}
        self._characters = 0

    def add(self, word: str, label: str) -> None:
        places = self._places.get(word)
        if places is None:
            places = self._places[word] = []
            self._characters += len(word)
        self.end += 1
        places.append(f"{self.end}{label}")

    def takes(self, word: str) -> bool:
        return (
            self.end < _MOST_PLACES
            and self._characters < _MOST_CHARACTERS
            and len(self._places.get(word, ())) < _MOST_OF_A_WORD
        )

    def __str__(self) -> str:
        # A word consists of letters, digits and _, so nothing in it needs a quotation.
        return " ".join([f"'{word}':{','.join(at)}" for word, at in self._places.items()])


def vectors(text: str, parts: str) -> Vectors:
    """The vectors of a message with this text, and these words inside of its identifiers.

    Words of the text have the weight A, those of the parts have D.
    """
    said, inside = _cut(text), _cut(parts)
    return Vectors([str(piece) for piece in _pieces(said, inside)], len(said) + len(inside))


def condition(term: Term) -> str | None:
    """The condition of a term, as the server writes it; None if the term has no word."""
    found = [f"'{word}'" for word in _cut(term.text)[:LONGEST_PHRASE]]
    return " <-> ".join(found) + ":*" * term.prefix if found else None


def _cut(text: str) -> list[str]:
    return [word[:_LONGEST_WORD] for word in words(text)]


def _pieces(said: list[str], inside: list[str]) -> Iterator[_Piece]:
    if not said and not inside:
        return
    piece = _Piece()
    for found, label in ((said, "A"), (inside, "")):
        for place, word in enumerate(found):
            if not piece.takes(word):
                yield piece
                piece = _Piece()
                for before in found[max(0, place - LONGEST_PHRASE + 1) : place]:
                    piece.add(before, label)
            piece.add(word, label)
        piece.end += _GAP
    yield piece


MOST_RANKED: Final = 50_000
"""Messages that are compared; of more that match, the latest."""

_MOST_COUNTED: Final = 100_000
_PARTS_WEIGHT: Final = 0.5  # of a match in the parts of an identifier, as in sqlite_index.py

# Of every term: how many messages have it. Of a frequent one that is a large number in any case.
_COUNTS: Final = f"""
SELECT t.place, (SELECT count(*) FROM (SELECT FROM eventctx.recall_messages m
    WHERE m.words @@ t.condition::tsquery AND m.tenant = current_user LIMIT {_MOST_COUNTED}) AS a)
  + (SELECT count(DISTINCT p.message) FROM eventctx.recall_pieces p
    JOIN eventctx.recall_messages m ON m.id = p.message
    WHERE p.words @@ t.condition::tsquery AND m.tenant = current_user)
FROM unnest($1) WITH ORDINALITY AS t(condition, place) ORDER BY t.place
"""  # noqa: S608
_TOTALS: Final = """
SELECT messages, length FROM eventctx.recall_marks WHERE tenant = current_user
"""

_WITHIN: Final = """
AND EXISTS (SELECT FROM unnest($6, $7, $8) AS s(stream, first, last)
  WHERE s.stream = m.stream AND m.position BETWEEN s.first AND s.last)
"""


_FOUND: Final = """
WITH t AS (
  SELECT * FROM unnest($2, $3) WITH ORDINALITY AS t(condition, rarity, place)),
found AS (
  SELECT m.id FROM eventctx.recall_messages m
  WHERE m.words @@ $1::tsquery AND m.tenant = current_user {within}
  UNION ALL
  SELECT p.message FROM t JOIN eventctx.recall_pieces p ON p.words @@ t.condition::tsquery
    JOIN eventctx.recall_messages m ON m.id = p.message
  WHERE m.tenant = current_user {within}
  GROUP BY p.message HAVING count(DISTINCT t.place) >= $4
  ORDER BY 1 DESC LIMIT {most})
"""

_RANKED: Final = """,
v AS (
  SELECT m.id, m.words FROM found JOIN eventctx.recall_messages m USING (id)
  WHERE m.words IS NOT NULL
  UNION ALL
  SELECT p.message, p.words FROM found JOIN eventctx.recall_pieces p ON p.message = found.id),
counted AS (
  SELECT v.id, t.place, t.rarity,
    sum(ts_rank_cd('{{{parts},1,1,1}}', v.words, t.condition::tsquery)) AS often
  FROM v JOIN t ON v.words @@ t.condition::tsquery GROUP BY v.id, t.place, t.rarity)
SELECT m.stream, m.position, m.index, m.number, m.time, sum(c.rarity::float8 * c.often * 2.2 /
    (c.often + 1.2 * (0.25 + 0.75 * m.length / total.average)) ORDER BY c.place) AS score
FROM counted c JOIN eventctx.recall_messages m USING (id),
  (SELECT greatest(length / greatest(messages, 1)::float8, 1) AS average
   FROM eventctx.recall_marks WHERE tenant = current_user) AS total
GROUP BY m.id ORDER BY score DESC, m.id DESC LIMIT $5
"""


def _statement(within: str) -> str:
    found = _FOUND.format(within=within, most=MOST_RANKED)
    return found + _RANKED.format(parts=_PARTS_WEIGHT)


def _count_statement(within: str) -> str:
    return _FOUND.format(within=within, most="ALL") + "SELECT count(*) FROM found"  # noqa: S608


_EVERYWHERE: Final = _statement("")
_IN_SEGMENTS: Final = _statement(_WITHIN)
_COUNT_EVERYWHERE: Final = _count_statement("")
_COUNT_IN_SEGMENTS: Final = _count_statement(_WITHIN)
_KINDS: Final = (TEXT, TEXTS, TEXTS, INT4, INT8)


def rank(
    connection: ServerConnection,
    terms: Sequence[Term],
    within: tuple[bytes, bytes, bytes] | None,
    limit: int,
    *,
    every: bool,
) -> Rows:
    """Place and score of the best matches, of equal ones the latest first; see ``TextIndex``.

    ``within`` are segments' streams, first and last positions, as arrays for the server.
    """
    found = [one for one in map(condition, terms) if one is not None]
    if not found:
        return []
    conditions = [one.encode() for one in found]
    params = _params(conditions, _rarities(connection, conditions), limit, every=every)
    if within is None:
        return connection.rows(_EVERYWHERE, _KINDS, params)
    return connection.rows(_IN_SEGMENTS, (*_KINDS, TEXTS, INT8S, INT8S), (*params, *within))


def count(
    connection: ServerConnection,
    terms: Sequence[Term],
    within: tuple[bytes, bytes, bytes] | None,
    *,
    every: bool,
) -> int:
    """How many messages ``rank`` finds without a limit."""
    conditions = [one.encode() for one in map(condition, terms) if one is not None]
    if not conditions:
        return 0
    params = _params(conditions, [1.0] * len(conditions), 0, every=every)
    if within is None:
        ((found,),) = connection.rows(_COUNT_EVERYWHERE, _KINDS, params)
    else:
        kinds = (*_KINDS, TEXTS, INT8S, INT8S)
        ((found,),) = connection.rows(_COUNT_IN_SEGMENTS, kinds, (*params, *within))
    return int(found)


def _params(
    conditions: Sequence[bytes], rarities: Sequence[float], limit: int, *, every: bool
) -> tuple[bytes, ...]:
    return (
        (b" & " if every else b" | ").join([b"(%s)" % one for one in conditions]),
        encoding.blobs(TEXTS, conditions),
        encoding.blobs(TEXTS, [repr(one).encode() for one in rarities]),
        encoding.int4(len(conditions) if every else 1),
        encoding.int8(limit),
    )


def _rarities(connection: ServerConnection, conditions: Sequence[bytes]) -> list[float]:
    """How much a match of each term weighs: the more, the fewer messages have it."""
    if len(conditions) == 1:
        return [1.0]  # it would change no order
    totals = connection.rows(_TOTALS)
    messages = totals[0][0] if totals else 0
    found = connection.rows(_COUNTS, (TEXTS,), (encoding.blobs(TEXTS, conditions),))
    return [max(log(max(messages - n + 0.5, 1e-9) / (n + 0.5)), 1e-6) for _, n in found]
