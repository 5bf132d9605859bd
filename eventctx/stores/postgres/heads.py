"""The ends of streams as this process last saw them: a guess that the server checks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from eventctx.errors import LogCorrupted
from eventctx.stores.postgres import encoding
from eventctx.stores.postgres.connections import ServerConnection

_MOST_CACHED: Final = 10_000

_HEADS: Final = """
SELECT s.name, s.id, r.position, r.digest, r.id FROM eventctx.streams s
LEFT JOIN LATERAL (SELECT r.position, r.digest, r.id FROM eventctx.records r
  WHERE r.stream = s.id ORDER BY r.position DESC LIMIT 1) r ON true
WHERE s.name = ANY($1)
"""


class KnownHead(NamedTuple):
    """A stream's row id and its last record's position, digest and event id."""

    stream: int
    position: int
    digest: bytes
    event: bytes


class KnownHeads:
    """The heads of streams, bounded; a stream that is known not to exist has None."""

    def __init__(self) -> None:
        self._heads: dict[str, KnownHead | None] = {}

    def __contains__(self, stream: str) -> bool:
        return stream in self._heads

    def __getitem__(self, stream: str) -> KnownHead | None:
        return self._heads[stream]

    def remember(self, stream: str, head: KnownHead | None) -> None:
        """Note a stream's head."""
        if len(self._heads) >= _MOST_CACHED:
            self._heads.clear()
        self._heads[stream] = head

    def forget(self, stream: str | None = None) -> None:
        """Drop one stream's head, or all."""
        if stream is None:
            self._heads.clear()
        else:
            self._heads.pop(stream, None)

    def fetch(self, connection: ServerConnection, streams: Iterable[str]) -> None:
        """Read the heads of ``streams``. Raises LogCorrupted for one that lost all its records."""
        for stream, head in read_heads(connection, streams).items():
            self.remember(stream, head)


def read_heads(connection: ServerConnection, streams: Iterable[str]) -> dict[str, KnownHead | None]:
    """The heads of streams as they are now; None for one that does not exist."""
    found: dict[str, KnownHead | None] = dict.fromkeys(streams)
    names = encoding.blobs(encoding.TEXTS, [encoding.text(stream) for stream in found])
    for name, stream, position, digest, event in connection.rows(
        _HEADS, (encoding.TEXTS,), (names,)
    ):
        name = encoding.from_text(name)
        if position is None:
            raise LogCorrupted(name, 0, "all records of the session were removed")
        found[name] = KnownHead(stream, position, digest, event)
    return found
