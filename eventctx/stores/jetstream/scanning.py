"""One read of a session, page by page: what comes is chained to what came before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from eventctx.errors import LogCorrupted
from eventctx.log.record import GENESIS, Record, follows
from eventctx.stores.jetstream.owners import Owned, Owners, existing
from eventctx.stores.jetstream.positions import Positions
from eventctx.stores.jetstream.units import Erased
from eventctx.stores.jetstream.verifying import Head, Heads

PAGE_RECORDS: Final = 1000


class Parts(Protocol):
    """Where the pages of a read come from: the ``Reader``."""

    heads: Heads
    owners: Owners
    positions: Positions

    async def part(
        self, stream: str, owned: Owned, low: int, high: int, erased: Erased, data: bool
    ) -> list[Record]:
        """Some records of ``owned`` from ``low`` on, at least one, and none behind ``high``."""
        ...


class Scan:
    """One read of a session, page by page."""

    def __init__(
        self,
        reader: Parts,
        stream: str,
        owned: Sequence[Owned],
        erased: dict[str, Erased],
        head: Head,
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
            # Where its records end narrows the search for those that are wanted.
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
