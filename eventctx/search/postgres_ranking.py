"""The best matches of a search on a PostgreSQL server, by the measure of the index in a file: BM25.

The server's own measures know nothing of how rare a word is or how long a message. But for a single
word or phrase ``ts_rank_cd`` is the number of its places in a vector, each times its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Final

from eventctx.search.index import Term
from eventctx.search.postgres_words import condition
from eventctx.stores.postgres import encoding
from eventctx.stores.postgres.connections import Rows, ServerConnection
from eventctx.stores.postgres.encoding import INT4, INT8, INT8S, TEXT, TEXTS

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


_SEARCH: Final = """
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
  ORDER BY 1 DESC LIMIT {most}),
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
    return _SEARCH.format(within=within, most=MOST_RANKED, parts=_PARTS_WEIGHT)


_EVERYWHERE: Final = _statement("")
_IN_SEGMENTS: Final = _statement(_WITHIN)
_KINDS: Final = (TEXT, TEXTS, TEXTS, INT4, INT8)


def ranked(
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
    params = (
        (b" & " if every else b" | ").join([b"(%s)" % one for one in conditions]),
        encoding.blobs(TEXTS, conditions),
        encoding.blobs(TEXTS, [repr(one).encode() for one in _rarities(connection, conditions)]),
        encoding.int4(len(found) if every else 1),
        encoding.int8(limit),
    )
    if within is None:
        return connection.rows(_EVERYWHERE, _KINDS, params)
    return connection.rows(_IN_SEGMENTS, (*_KINDS, TEXTS, INT8S, INT8S), (*params, *within))


def _rarities(connection: ServerConnection, conditions: Sequence[bytes]) -> list[float]:
    """How much a match of each term weighs: the more, the fewer messages have it."""
    if len(conditions) == 1:
        return [1.0]  # it would change no order
    totals = connection.rows(_TOTALS)
    messages = totals[0][0] if totals else 0
    found = connection.rows(_COUNTS, (TEXTS,), (encoding.blobs(TEXTS, conditions),))
    return [max(log(max(messages - n + 0.5, 1e-9) / (n + 0.5)), 1e-6) for _, n in found]
