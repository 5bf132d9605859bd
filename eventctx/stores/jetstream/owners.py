"""The parts of a session's read: its owners, their erasures, places in JetStream, and the pages.

A fork's records are its own and, by reference, those of its parents. Where a session begins never
changes, so it is cached. No server can be asked for a position, but positions and sequences rise
together, so any unit seen narrows the search for another (``Positions``). All of this is a cache:
what was forgotten is found again with some more questions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from eventctx.errors import LogCorrupted, StreamNotFound
from eventctx.log.record import GENESIS, Record, follows
from eventctx.stores.jetstream.layout import SessionOrigin, decode_erased
from eventctx.stores.jetstream.retrying_reads import RetryingReads, StoredMessage
from eventctx.stores.jetstream.verifying import (
    Erased,
    Gathered,
    Incomplete,
    SessionEnds,
    SessionHead,
)

MOST_UNITS: Final = 500_000
"""Most units of all sessions together, of about 16 bytes each."""


class UnitPlace(NamedTuple):
    """The unit whose first record has the position ``first`` begins at ``sequence``."""

    first: int
    sequence: int


class _Session:
    __slots__ = ("firsts", "sequences")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.sequences: list[int] = []


class Positions:
    """Places of units of many sessions; the least recently used session is dropped first."""

    def __init__(self, most: int = MOST_UNITS) -> None:
        self._most = most
        self._count = 0
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def add(self, session: str, first: int, sequence: int) -> None:
        """Note that a unit begins with the position ``first`` and at ``sequence``."""
        found = self._sessions.get(session)
        if found is None:
            found = self._sessions[session] = _Session()
        if not found.firsts or first > found.firsts[-1]:
            found.firsts.append(first)
            found.sequences.append(sequence)
        else:
            place = bisect_right(found.firsts, first)
            if place and found.firsts[place - 1] == first:
                found.sequences[place - 1] = sequence
                return
            found.firsts.insert(place, first)
            found.sequences.insert(place, sequence)
        self._count += 1
        while self._count > self._most and len(self._sessions) > 1:
            oldest = next(iter(self._sessions))
            self.forget(session if oldest == session else oldest)

    def before(self, session: str, position: int) -> UnitPlace | None:
        """The last unit seen that begins at ``position`` or before; None if there is none."""
        found = self._sessions.get(session)
        if found is None:
            return None
        self._sessions.move_to_end(session)
        place = bisect_right(found.firsts, position)
        return UnitPlace(found.firsts[place - 1], found.sequences[place - 1]) if place else None

    def after(self, session: str, position: int) -> UnitPlace | None:
        """The first unit seen that begins after ``position``; None if there is none."""
        found = self._sessions.get(session)
        if found is None:
            return None
        place = bisect_right(found.firsts, position)
        if place == len(found.firsts):
            return None
        return UnitPlace(found.firsts[place], found.sequences[place])

    def forget(self, session: str) -> None:
        found = self._sessions.pop(session, None)
        if found is not None:
            self._count -= len(found.firsts)


_MOST_KEPT: Final = 10_000
_FIRST_MESSAGES: Final = 8
_TRIES: Final = 4


class Owned(NamedTuple):
    """Positions ``first`` to ``last`` of a session are records of the session ``owner``."""

    owner: str
    first: int
    last: int


class Beginning(NamedTuple):
    """The origin of a session, and the position of the first record of its own."""

    origin: SessionOrigin
    first: int


class Owners:
    """The origins of sessions, and their erasures, with a bounded memory of both."""

    def __init__(self, reads: RetryingReads, heads: SessionEnds) -> None:
        self._reads = reads
        self._heads = heads
        self._names = reads.names
        self._beginnings: OrderedDict[str, Beginning] = OrderedDict()
        self._erased: OrderedDict[str, tuple[int, dict[tuple[int, int], bytes]]] = OrderedDict()

    async def beginning(self, session: str, head: SessionHead) -> Beginning:
        """The origin of a session whose end is ``head``. Raises LogCorrupted."""
        if head.unit.origin is not None:
            return Beginning(head.unit.origin, head.unit.first)
        found = self._beginnings.get(session)
        if found is None:
            found = await self._first(session)
            self._beginnings[session] = found
            while len(self._beginnings) > _MOST_KEPT:
                self._beginnings.popitem(last=False)
        return found

    async def _first(self, session: str) -> Beginning:
        shard, subject = self._names.shard(session), self._names.of_session("r", session)
        problem = "its first record is missing"
        for number in range(_TRIES):
            gathered = Gathered()
            try:
                if number < _TRIES - 1:
                    page = await self._reads.page(shard, subject, 1, messages=_FIRST_MESSAGES)
                    gathered.add(page.messages)
                else:
                    sequence = 1
                    while not gathered.units and (
                        one := await self._reads.next(shard, subject, sequence)
                    ):
                        gathered.add([one])
                        sequence = one.sequence + 1
            except Incomplete as damage:
                problem = damage.problem
                continue
            unit = gathered.units[0].unit if gathered.units else None
            if unit is not None and unit.origin is not None:
                return Beginning(unit.origin, unit.first)
        raise LogCorrupted(session, 0, problem)

    async def lineage(self, session: str, head: SessionHead) -> list[Owned]:
        """The ranges of records that make up a session up to ``head``, oldest first.

        Raises LogCorrupted.
        """
        found: list[Owned] = []
        owner, last, met = session, head.position, {session}
        beginning = await self.beginning(session, head)
        while True:
            if beginning.first <= last:
                found.append(Owned(owner, beginning.first, last))
            parent, forked_at = beginning.origin.parent, beginning.origin.forked_at
            if parent is None or forked_at is None:
                return found[::-1]
            if parent in met:
                raise LogCorrupted(session, -1, "its forks have no beginning")
            met.add(parent)
            owner, last = parent, min(last, forked_at)
            known = self._beginnings.get(parent)
            if known is None:
                parents = await self._heads.head(parent)
                if parents is None or parents.deleted:
                    problem = f"the session {parent!r} that it was forked from is missing"
                    raise LogCorrupted(session, -1, problem)
                known = await self.beginning(parent, parents)
            beginning = known

    async def erased(self, owner: str) -> Erased:
        """The bodies that were erased of the records that ``owner`` owns. Raises LogCorrupted."""
        shard, subject = self._names.shard(owner), self._names.of_session("e", owner)
        last = await self._reads.last(shard, subject)
        if last is None:
            return {}
        upto, bodies = self._erased.get(owner, (0, {}))
        if upto < last.sequence:
            bodies = dict(bodies)
            for message in await self._between(shard, subject, upto + 1, last):
                try:
                    for one in decode_erased(message.data):
                        bodies[one.position, one.index] = one.facts
                except msgspec.MsgspecError as error:
                    problem = f"erasure {message.sequence} is damaged: {error}"
                    raise LogCorrupted(owner, -1, problem) from error
            self._erased[owner] = (last.sequence, bodies)
            while len(self._erased) > _MOST_KEPT:
                self._erased.popitem(last=False)
        return bodies

    async def _between(
        self, shard: int, subject: str, first: int, last: StoredMessage
    ) -> list[StoredMessage]:
        """The messages of a subject from the sequence ``first`` to the message ``last``."""
        if first == last.sequence:
            return [last]
        found: list[StoredMessage] = []
        while not found or found[-1].sequence < last.sequence:
            page = await self._reads.page(
                shard, subject, found[-1].sequence + 1 if found else first
            )
            if not page.messages:
                # A replica that lags, or is damaged: the leader has them, one by one.
                step = await self._reads.next(
                    shard, subject, found[-1].sequence + 1 if found else first
                )
                page = page._replace(messages=[last if step is None else step])
            found += page.messages
        return found

    def forget(self, session: str) -> None:
        """Drop the cached facts of a deleted session."""
        self._beginnings.pop(session, None)
        self._erased.pop(session, None)


async def existing(heads: SessionEnds, session: str) -> SessionHead:
    """The end of an existing session. Raises StreamNotFound."""
    head = await heads.head(session)
    if head is None:
        raise StreamNotFound(session)
    return head


PAGE_RECORDS: Final = 1000


class _Parts(Protocol):
    """The source of the pages of a read: the ``SessionReader``."""

    heads: SessionEnds
    owners: Owners
    positions: Positions

    async def part(
        self, stream: str, owned: Owned, low: int, high: int, erased: Erased, data: bool
    ) -> list[Record]:
        """Some records of ``owned`` from ``low`` on, at least one, and none after ``high``."""
        ...


class Scan:
    """One read of a session, page by page; each page must chain to the one before."""

    def __init__(
        self,
        reader: _Parts,
        stream: str,
        owned: Sequence[Owned],
        erased: dict[str, Erased],
        head: SessionHead,
        first: int,
        last: int,
        backward: bool,
        left: int,
        data: bool,
    ) -> None:
        self._reader = reader
        self._stream = stream
        self._owned = owned
        self._erased = erased
        self._head = head
        self._first, self._last = first, last
        self._backward = backward
        self._left = left
        self._data = data
        self._next_to: Record | None = None
        """The record at the end of the last page, to which the next page must be chained."""

    async def page(self) -> list[Record]:
        """The next records; none at the end. Raises LogCorrupted, StoreUnavailable."""
        if self._left <= 0 or self._first > self._last:
            return []
        found = await (self._page_back() if self._backward else self._page_on())
        self._left -= len(found)
        return found

    async def _page_on(self) -> list[Record]:
        owned = next(one for one in self._owned if one.first <= self._first <= one.last)
        high = min(owned.last, self._last, self._first + self._left - 1)
        found = await self._part(owned, self._first, high)
        self._check(found, self._next_to)
        self._first = found[-1].position + 1
        self._next_to = found[-1]
        return found

    async def _page_back(self) -> list[Record]:
        owned = next(one for one in self._owned if one.first <= self._last <= one.last)
        count = min(self._left, PAGE_RECORDS)
        low = max(owned.first, self._first, self._last - count + 1)
        found: list[Record] = []
        while not found or found[-1].position < self._last:
            at = found[-1].position + 1 if found else low
            found += await self._part(owned, at, self._last)
        self._check(found, None)
        if self._next_to is not None and not follows(found[-1].digest, self._next_to):
            raise _broken(self._stream, self._next_to.position)
        self._last = low - 1
        self._next_to = found[0]
        return found[::-1]

    async def _part(self, owned: Owned, low: int, high: int) -> list[Record]:
        erased = self._erased.get(owned.owner)
        if erased is None:
            erased = self._erased[owned.owner] = await self._reader.owners.erased(owned.owner)
            # A known end narrows the search for the wanted records.
            head = await existing(self._reader.heads, owned.owner)
            self._reader.positions.add(owned.owner, head.unit.first, head.begins)
        return await self._reader.part(self._stream, owned, low, high, erased, self._data)

    def _check(self, records: Sequence[Record], before: Record | None) -> None:
        digest = None if before is None else before.digest
        if records[0].position == 0:
            digest = GENESIS
        for record in records:
            if digest is not None and not follows(digest, record):
                raise _broken(self._stream, record.position)
            digest = record.digest
        if records[-1].position == self._head.position and digest != self._head.digest:
            raise _broken(self._stream, self._head.position)


def _broken(stream: str, position: int) -> LogCorrupted:
    return LogCorrupted(stream, position, "its digest does not follow from the record before it")
