"""Searches all messages that were ever added to a store, in view or not.

Every search first brings the index up to date (``catch_up``). The index may be lost, and a body may
be erased, between two steps: ``IndexLost`` starts a search again, and a hit whose body is erased is
removed from the index and the search repeated, both at most ``_ATTEMPTS`` times. Invariants: a text
that is returned was read from the store for this search, so an erased message is never returned;
and every batch of records moves the mark, so an index that is not disturbed reaches the end.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

import msgspec

from eventctx.errors import (
    InvalidSetting,
    LogCorrupted,
    StoreUnavailable,
    StreamNotFound,
)
from eventctx.log.arguments import shown
from eventctx.log.integrity import sound_bodies
from eventctx.log.record import Record
from eventctx.log.store import Address, EventStore
from eventctx.messages.encoding import decode_body
from eventctx.messages.parts import role_of
from eventctx.messages.recall_text import text_of
from eventctx.search import documents as recall
from eventctx.search.documents import parse, snippet
from eventctx.search.index import (
    END,
    Gone,
    Hit,
    IndexLost,
    Lineage,
    Mark,
    Place,
    Segment,
    Term,
    TextIndex,
)
from eventctx.text import html_table, summary_line

T = TypeVar("T")

MAX_LIMIT: Final = 1_000
BATCH_RECORDS: Final = 10_000
BATCH_BYTES: Final = 4 * 2**20
_EVERY_HIT: Final = 2**31 - 1
_READ_AT_ONCE: Final = 64
_FOUND_AT_ONCE: Final = 4_096
"""Places that are read from the index at a time; of a server that is one round trip."""
_ATTEMPTS: Final = 12
_PAUSE: Final = 0.01
"""Seconds to wait after a loss, more after each: several processes may be at it at once."""

_MOST_LINEAGES: Final = 10_000


class Recalled(msgspec.Struct, frozen=True):
    """A message that matches a search.

    ``number`` and ``position`` are those in ``session``, ``time`` is in UTC nanoseconds. A higher
    ``score`` is a better match; scores of different searches cannot be compared. ``snippet`` is the
    part of the message's text that shows why it matches, on one line.
    """

    session: str
    number: int
    position: int
    role: str
    score: float
    snippet: str
    time: int
    message: dict[str, Any]

    def __repr__(self) -> str:
        return summary_line(f"Recalled {self.session} #{self.number} {self.role}:", self.snippet)

    def _repr_html_(self) -> str:
        row = (self.session, self.number, self.role, self.snippet)
        return html_table("Recalled", ("session", "message", "role", "text"), [row])


class FoundMessage(NamedTuple):
    """A message found by its number; ``message`` is None if it was erased. Time in UTC ns."""

    number: int
    position: int
    time: int
    message: dict[str, Any] | None


class _SearchRequest(NamedTuple):
    """A search. ``every``: messages must have all terms; ``besides``: numbers to leave out."""

    terms: Sequence[Term]
    session: str | None
    lineage: Lineage | None
    limit: int
    every: bool
    besides: frozenset[int]


class Recall:
    """Search over a store, through an index that every search first brings up to date.

    Safe to call from several tasks, threads and event loops. The index is called in other threads.
    """

    def __init__(self, store: EventStore, index: TextIndex) -> None:
        self._store = store
        self._index = index
        self._lineages: dict[str, Lineage] = {}
        self._filling: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    async def search(
        self,
        query: str,
        session: str | None = None,
        limit: int = 10,
        *,
        every: bool = True,
        besides: frozenset[int] = frozenset(),
    ) -> list[Recalled]:
        """The messages that match ``query`` best, of all sessions or of one; best first.

        A query has words, ``"phrases"`` and ``prefix*``; all else is literal. The result are
        messages with all terms; if there are none, or ``every`` is False, messages with any of
        them. A fork includes its inherited messages. The message numbers ``besides`` of the session
        are left out. Raises StreamNotFound, InvalidSetting, and the errors of store and index.
        """
        if not isinstance(query, str):
            raise InvalidSetting(f"recall: expected a text to search for, found {shown(query)}")
        if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
            raise InvalidSetting(
                f"limit: expected an int from 1 to {MAX_LIMIT}, found {shown(limit)}"
            )
        lineage = None if session is None else await self._lineage_now(session)
        terms = parse(query)
        if not terms:
            return []
        request = _SearchRequest(terms, session, lineage, limit, every, besides)
        return await self._ask(lambda: self._find(request))

    async def matches(
        self, query: str, session: str | None, keeps: Callable[[Place], bool]
    ) -> AsyncIterator[Recalled]:
        """What ``search`` finds without a limit; without words all messages, the latest first.

        Messages whose place ``keeps`` refuses are left out unread. Raises as ``search``.
        """
        lineage = None if session is None else await self._lineage_now(session)
        terms = parse(query)
        request = _SearchRequest(terms, session, lineage, _EVERY_HIT, True, frozenset())
        hits = await self._ask(
            lambda: asyncio.to_thread(self._hits, request) if terms else self._latest(session)
        )
        kept = [hit for hit in hits if keeps(hit.place)]
        for start in range(0, len(kept), _READ_AT_ONCE):
            found, _ = await self._fetch(kept[start : start + _READ_AT_ONCE], terms, session)
            for one in found:
                yield one

    async def _latest(self, session: str | None) -> list[Hit]:
        """The places of all messages of a session, or of all: of each its own, latest first."""
        if session is not None:
            streams = [session]
        else:
            streams = [info.stream async for info in self._store.streams() if not info.deleted]
        lineages = {stream: await self._lineage(stream) for stream in streams}

        def look() -> list[Hit]:
            found: list[Place] = []
            for stream, lineage in lineages.items():
                for first in range(0, self._index.following(lineage), _FOUND_AT_ONCE):
                    places = self._index.find(lineage, first, first + _FOUND_AT_ONCE - 1)
                    found += [one for one in places if session is not None or one.stream == stream]
            found.sort(key=lambda place: (place.time, place.number), reverse=True)
            return [Hit(place, 0.0) for place in found]

        return await asyncio.to_thread(look)

    async def count(self, query: str, session: str | None = None) -> int:
        """How many messages ``search`` finds without a limit. Raises as ``search``."""
        lineage = None if session is None else await self._lineage_now(session)
        terms = parse(query)

        def count() -> int:
            found = self._index.count(terms, lineage, every=True)
            return found or self._index.count(terms, lineage, every=False)

        return await self._ask(lambda: asyncio.to_thread(count)) if terms else 0

    async def message(self, session: str, number: int) -> FoundMessage:
        """Message ``number`` of a session, also one that a set or a clear took out.

        Raises StreamNotFound, and InvalidSetting for a number without a message.
        """
        if type(number) is not int or not 0 <= number < END:
            raise InvalidSetting(
                f"message: expected a message number from 0, found {shown(number)}"
            )
        lineage = await self._lineage_now(session)

        def look() -> tuple[list[Place], int]:
            return self._index.find(lineage, number, number), self._index.following(lineage)

        places, following = await self._ask(lambda: asyncio.to_thread(look))
        if not places:
            numbers = f"a number from 0 to {following - 1}" if following else "no number yet"
            raise InvalidSetting(f"message of {session!r}: expected {numbers}, found {number}")
        (place,) = places
        address = Address(place.position, place.index)
        (body,) = await sound_bodies(self._store, place.stream, [address])
        message = None if body.data is None else _decode(place, body.data)
        return FoundMessage(place.number, place.position, place.time, message)

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer of the index, brought up to date; asked again where it was lost meanwhile."""
        for attempt in range(_ATTEMPTS):
            try:
                reached = await self.catch_up()
                found = await question()
                await self._check_kept(reached)
            except IndexLost:
                await asyncio.sleep(_PAUSE * attempt)
                continue
            return found
        raise _lost()

    async def close(self) -> None:
        """Release the index; the store stays open."""
        await asyncio.to_thread(self._index.close)

    def exists(self) -> bool:
        """Whether there is an index already; without one there is nothing to forget."""
        return self._index.exists()

    async def forget_destroyed(self) -> None:
        """Take the words of all that was erased or deleted out of the index."""
        for attempt in range(_ATTEMPTS):
            try:
                await self.catch_up()
            except IndexLost:
                await asyncio.sleep(_PAUSE * attempt)
                continue
            return
        raise _lost()

    # -- filling the index -----------------------------------------------------------------------

    async def catch_up(self) -> Mark | None:
        """Index the records appended since the last time; returns the last record in the index.

        After IndexLost, call it again.
        """
        # One task of a loop fills the index while the others wait. A second loop or process may
        # fill it at the same time, which wastes work but does no harm.
        lock = self._filling.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        async with lock:
            furthest, stuck = -1, 0
            while stuck < _ATTEMPTS:
                begun = await asyncio.to_thread(self._index.mark)
                done, mark = await self._reached_the_end(begun)
                if done:
                    return mark
                # Another process that fills the index moves the mark, one that clears it does not.
                position = -1 if begun is None else begun.position
                stuck = 0 if position > furthest else stuck + 1
                furthest = max(furthest, position)
                if stuck == _ATTEMPTS // 2:
                    await asyncio.to_thread(self._index.clear)  # it is damaged
            raise _lost()

    async def _check_kept(self, reached: Mark | None) -> None:
        """Raise IndexLost if the index holds less than it did when it was brought up to date.

        A process whose index was deleted under it leaves a journal next to the new file. SQLite
        takes it for the new file's own, and rolls that back to the old state.
        """
        mark = await asyncio.to_thread(self._index.mark)
        if reached is not None and (mark is None or mark.position < reached.position):
            raise IndexLost("the index was rolled back")

    async def _reached_the_end(self, mark: Mark | None) -> tuple[bool, Mark | None]:
        """Index all records after ``mark``, and return whether that was done, and the new mark.

        It was not if another task or process moved the mark, or the index had to be cleared.
        """
        waiting_for_mark = mark is not None
        batch: list[Record] = []
        size = 0
        # Begin with the marked record, to check that it is there: the store may have been replaced.
        records: Any = self._store.read_all(after=-1 if mark is None else mark.position - 1)
        async with aclosing(records):
            async for record in records:
                if waiting_for_mark:
                    waiting_for_mark = False
                    if mark == _mark_of(record):
                        continue
                    return await self._clear()
                batch.append(record)
                size += sum([len(body.data or b"") for body in record.bodies])
                if len(batch) >= BATCH_RECORDS or size >= BATCH_BYTES:
                    if not await self._put(mark, batch):
                        return False, None
                    mark, batch, size = _mark_of(record), [], 0
        if waiting_for_mark:
            return await self._clear()
        if not batch:
            return True, mark
        return await self._put(mark, batch), _mark_of(batch[-1])

    async def _clear(self) -> tuple[bool, None]:
        """Begin with an empty index: this one holds records that the store no longer has."""
        await asyncio.to_thread(self._index.clear)
        return False, None

    async def _put(self, after: Mark | None, batch: Sequence[Record]) -> bool:
        deleted = recall.deleted(batch)
        for stream in deleted:
            self._lineages.pop(stream, None)  # a fork that is deleted is none any more
        lineages = {stream: await self._lineage(stream) for stream in {r.stream for r in batch}}

        def index() -> bool:
            documents, gone = recall.read(batch, lineages, self._index.following)
            return self._index.extend(after, _mark_of(batch[-1]), documents, gone, deleted)

        return await asyncio.to_thread(index)

    async def _lineage_now(self, stream: str) -> Lineage:
        """The segments of the stream, which another process may have deleted meanwhile."""
        info = await self._store.head(stream)
        if info is None or info.deleted:
            self._lineages.pop(stream, None)
        return await self._lineage(stream)

    async def _lineage(self, stream: str) -> Lineage:
        """The segments of the stream, its own first. Raises StreamNotFound, LogCorrupted."""
        known = self._lineages.get(stream)
        if known is not None:
            return known
        segments: list[Segment] = []
        name: str | None = stream
        last = END
        met: set[str] = set()
        while name is not None:
            if name in met:
                problem = "its forks have no beginning: the streams' parents were changed"
                raise LogCorrupted(stream, -1, problem)
            met.add(name)
            info = await self._store.head(name)
            if info is None:
                raise StreamNotFound(name)
            forked_at = -1 if info.forked_at is None else info.forked_at
            if forked_at < last:
                segments.append(Segment(name, forked_at + 1, last))
            name, last = info.parent, min(last, forked_at)
        if len(self._lineages) >= _MOST_LINEAGES:
            self._lineages.clear()
        found = self._lineages[stream] = tuple(segments)
        return found

    # -- searching the index ---------------------------------------------------------------------

    async def _find(self, request: _SearchRequest) -> list[Recalled]:
        found: list[Recalled] = []
        for _ in range(_ATTEMPTS):
            hits = await asyncio.to_thread(self._hits, request)
            found, gone = await self._fetch(hits, request.terms, request.session)
            if not gone:
                break
            # These bodies are erased, but the record of the erasure is not in the index yet. Remove
            # their words, and search again for the hits that they displaced.
            await asyncio.to_thread(self._index.forget, gone)
        return found

    def _hits(self, request: _SearchRequest) -> list[Hit]:
        terms, lineage = request.terms, request.lineage
        most = request.limit + len(request.besides)
        hits = self._index.search(terms, lineage, most, every=True) if request.every else []
        if not hits and not (request.every and len(terms) == 1):
            hits = self._index.search(terms, lineage, most, every=False)
        others = [hit for hit in hits if hit.place.number not in request.besides]
        return others[: request.limit]

    async def _fetch(
        self, hits: Sequence[Hit], terms: Sequence[Term], session: str | None
    ) -> tuple[list[Recalled], list[Gone]]:
        """The messages of ``hits`` in their order, and the addresses of those that were erased."""
        data: dict[Place, bytes | None] = {}
        for stream in {hit.place.stream for hit in hits}:
            places = [hit.place for hit in hits if hit.place.stream == stream]
            addresses = [Address(place.position, place.index) for place in places]
            bodies = await sound_bodies(self._store, stream, addresses)
            data |= {place: body.data for place, body in zip(places, bodies, strict=True)}
        gone = [Gone(p.stream, p.position, p.index) for p, stored in data.items() if stored is None]
        found = await asyncio.to_thread(
            lambda: [
                _recall(hit, stored, terms, session)
                for hit in hits
                if (stored := data[hit.place]) is not None
            ]
        )
        return found, gone


def _recall(hit: Hit, data: bytes, terms: Sequence[Term], session: str | None) -> Recalled:
    place = hit.place
    message = _decode(place, data)
    return Recalled(
        session if session is not None else place.stream,
        place.number,
        place.position,
        role_of(message) or "unknown",
        hit.score,
        snippet(text_of(message), terms),
        place.time,
        message,
    )


def _decode(place: Place, data: bytes) -> dict[str, Any]:
    try:
        message = decode_body(data)
    except msgspec.DecodeError as error:
        problem = f"body {place.index} is no JSON"
        raise LogCorrupted(place.stream, place.position, problem) from error
    if not isinstance(message, dict):
        raise LogCorrupted(place.stream, place.position, f"body {place.index} is no message")
    return message


def _mark_of(record: Record) -> Mark:
    return Mark(record.global_position, record.id)


def _lost() -> StoreUnavailable:
    return StoreUnavailable(
        f"the search index was lost {_ATTEMPTS} times while it was being filled: is another "
        "program deleting or overwriting it?"
    )


# A store's driver is loaded when such a store is opened, so a store of a server is recognised here
# without loading a driver.
_OWN: Final = (
    (
        ("eventctx.stores.postgres.store", "PostgresStore"),
        ("eventctx.search.postgres_index", "PostgresTextIndex"),
    ),
)
"""Stores whose server searches, and the index that asks it."""


def text_index(store: EventStore, version: int) -> TextIndex:
    """The index of a store; opens nothing yet. ``version`` is that of the documents."""
    # A search fills the index, so a store opened for reading has an index of its own.
    for (home, name), (module, index) in () if store.read_only else _OWN:
        loaded = sys.modules.get(home)
        if loaded is not None and isinstance(store, getattr(loaded, name)):
            made = getattr(import_module(module), index)(store, version=version)
            return cast(TextIndex, made)
    # Loaded by the first search: few programs search, and all of them start.
    from eventctx.search.sqlite_index import SqliteTextIndex

    return SqliteTextIndex(store.cache_path, version=version, read_only=store.read_only)
