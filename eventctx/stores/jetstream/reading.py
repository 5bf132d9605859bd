"""Reads of sessions. Only complete answers are passed on.

The messages come from any replica, up to a thousand at once, and are checked: the positions follow
each other up to the leader's last unit, and every digest follows from the one before. A replica
that lags or is damaged is asked again, then the leader; a message that a settled leader lacks, too,
is LogCorrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from eventctx.errors import LogCorrupted
from eventctx.log.record import Body, Record
from eventctx.log.store import Address, StreamInfo
from eventctx.stores.jetstream.layout import SessionOrigin, Unit, token
from eventctx.stores.jetstream.owners import Owned, Owners, Positions, Scan, existing
from eventctx.stores.jetstream.retrying_reads import PAGE_MESSAGES, RetryingReads, StoredMessage
from eventctx.stores.jetstream.verifying import (
    Erased,
    Gathered,
    Incomplete,
    PlacedUnit,
    ReadTries,
    SessionEnds,
    records_of,
)

_NEAR_RECORDS = 16
_NEAR_SEQUENCES = 256
_MOST_PROBES = 60
_LEADERS_MESSAGES = 64
_APART = 32
"""Two wanted records with more records between them than this are asked for separately."""


class Verified(NamedTuple):
    """The end of a session as its leader has it, and its origin."""

    position: int
    digest: bytes
    event: bytes
    sequence: int
    origin: SessionOrigin
    deleted: bool


class SessionReader:
    """Reads of the sessions of one store, for use in the event loop of its client."""

    def __init__(self, reads: RetryingReads) -> None:
        self.reads = reads
        self.names = reads.names
        self.heads = SessionEnds(reads)
        self.owners = Owners(reads, self.heads)
        self.positions = Positions()
        self._density = 2.0
        """Messages per record in the last page: it keeps the next request from being too large."""
        self.short_reads = 0
        """Number of incomplete answers of replicas."""

    async def verified_head(self, stream: str) -> Verified | None:
        """The end of a session; None if it does not exist. Raises LogCorrupted."""
        head = await self.heads.head(stream)
        if head is None:
            return None
        beginning = await self.owners.beginning(stream, head)
        return Verified(
            head.position, head.digest, head.event, head.sequence, beginning.origin, head.deleted
        )

    async def head(self, stream: str) -> StreamInfo | None:
        found = await self.verified_head(stream)
        if found is None:
            return None
        made = found.origin
        return StreamInfo(
            stream,
            found.position,
            found.digest,
            made.created,
            made.parent,
            made.forked_at,
            found.deleted,
        )

    async def scan(
        self,
        stream: str,
        *,
        start: int = 0,
        stop: int | None = None,
        backward: bool = False,
        limit: int | None = None,
        bodies: bool = True,
    ) -> Scan:
        """Begin a read; see ``EventStore.read``. Raises StreamNotFound, LogCorrupted."""
        head, erased = await asyncio.gather(
            existing(self.heads, stream), self.owners.erased(stream)
        )
        if head.deleted:
            self.owners.forget(stream)
            self.positions.forget(stream)
        self.positions.add(stream, head.unit.first, head.begins)
        owned = await self.owners.lineage(stream, head)
        last = head.position if stop is None else min(stop, head.position)
        first = max(start, owned[0].first)
        left = 2**62 if limit is None else max(limit, 0)
        return Scan(
            self, stream, owned, {stream: erased}, head, first, last, backward, left, bodies
        )

    async def records(self, stream: str, first: int, last: int) -> list[Record]:
        """The records of these positions, all of which there are, with their bodies."""
        scan = await self.scan(stream, start=first, stop=last)
        found: list[Record] = []
        while page := await scan.page():
            found += page
        return found

    async def unit_at(self, owner: str, position: int) -> tuple[Unit, int]:
        """The unit of ``owner``'s own records with this position, and its sequence.

        Raises StreamNotFound, LogCorrupted.
        """
        head = await existing(self.heads, owner)
        self.positions.add(owner, head.unit.first, head.begins)
        tries = self.tries(self.names.shard(owner))
        subject = self.names.of_session("r", owner)
        while True:
            sequence = await self._locate(owner, position)
            while True:
                gathered = Gathered()
                messages, more = await self._fetch(owner, subject, sequence, 64, tries.leader)
                gathered.add(messages)
                for placed in gathered.units:
                    self.positions.add(owner, placed.unit.first, placed.begins)
                    if placed.unit.first <= position <= placed.unit.last:
                        return placed.unit, placed.sequence
                if not more or not gathered.units or gathered.units[-1].unit.first > position:
                    break
                sequence = gathered.seen + 1
            self.positions.forget(owner)
            await tries.after(Incomplete(position, "the record is missing"), owner, position)

    def tries(self, shard: int) -> ReadTries:
        """Tries of one read of a shard."""
        return ReadTries(self.heads, shard, self.reads.patience)

    async def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        head = await existing(self.heads, stream)
        wanted = sorted({address.position for address in addresses})
        runs: list[tuple[int, int]] = []
        for position in wanted:
            if not 0 <= position <= head.position:
                raise LogCorrupted(stream, position, "expected a body, found none")
            if runs and position - runs[-1][1] <= _APART:
                runs[-1] = (runs[-1][0], position)
            else:
                runs.append((position, position))
        needed = set(wanted)
        bodies: dict[int, tuple[Body, ...]] = {}
        for first, last in runs:
            for record in await self.records(stream, first, last):
                if record.position in needed:
                    bodies[record.position] = record.bodies
        found: list[Body] = []
        for position, index in addresses:
            of_record = bodies.get(position, ())
            if not 0 <= index < len(of_record):
                raise LogCorrupted(stream, position, f"expected a body {index}, found none")
            found.append(of_record[index])
        return found

    async def part(
        self, stream: str, owned: Owned, low: int, high: int, erased: Erased, data: bool
    ) -> list[Record]:
        """Some records of ``owned`` from ``low`` on, at least one, and none after ``high``.

        Raises LogCorrupted when the leader does not have them, either.
        """
        shard = self.names.shard(owned.owner)
        tries = self.tries(shard)
        while True:
            try:
                found = await self._part(stream, owned, low, high, erased, data, tries.leader)
                # A leader that answers instead of a replica must be checked for losses first.
                if tries.leader:
                    await self.heads.check(shard)
                return found
            except Incomplete as damage:
                self.short_reads += 1
                self.positions.forget(owned.owner)
                place = damage.position if damage.position >= 0 else low
                await tries.after(damage, stream, place)
                # The missing body may have been erased meanwhile.
                erased = await self.owners.erased(owned.owner)

    async def _part(
        self,
        stream: str,
        owned: Owned,
        low: int,
        high: int,
        erased: Erased,
        data: bool,
        leader: bool,
    ) -> list[Record]:
        owner = owned.owner
        shard = self.names.shard(owner)
        subject = f"{self.names.prefix}.{shard}.*.{token(owner)}"
        sequence = await self._locate(owner, low)
        batch = min(PAGE_MESSAGES, 16 + int(1.1 * self._density * (high - low + 1)))
        gathered = Gathered()
        found: list[Record] = []
        while True:
            messages, more = await self._fetch(owner, subject, sequence, batch, leader)
            gathered.add(messages)
            for placed in gathered.units:
                if placed.unit.last < low:
                    continue
                expected = low + len(found)
                if expected > high:
                    break
                self._check_order(placed, expected, bool(found))
                if not await self._complete(owner, gathered, placed, expected, high, erased, more):
                    break
                found += records_of(
                    placed, gathered, erased, self.names, shard, stream, expected, high, data
                )
                self.positions.add(owner, placed.unit.first, placed.begins)
            if found:
                span = found[-1].position - gathered.units[0].unit.first + 1
                self._density = max(len(messages) / span, 1.0)
                break
            if not more:
                raise Incomplete(low, f"the records from {low} to {high} are missing")
            sequence, batch = gathered.seen + 1, PAGE_MESSAGES
        if not more and low + len(found) <= high:
            missing = low + len(found)
            raise Incomplete(missing, f"the records from {missing} to {high} are missing")
        return found

    @staticmethod
    def _check_order(placed: PlacedUnit, expected: int, exactly: bool) -> None:
        first = placed.unit.first
        if first > expected:
            problem = f"the records from {expected} to {first - 1} are missing"
            raise Incomplete(expected, problem)
        if exactly and first < expected:
            raise Incomplete(first, f"message {placed.sequence} holds other records of its place")

    async def _complete(
        self,
        owner: str,
        gathered: Gathered,
        placed: PlacedUnit,
        low: int,
        high: int,
        erased: Erased,
        more: bool,
    ) -> bool:
        """Whether all bodies of a unit are there; False if they may come with the next page."""
        while (missing := gathered.missing(placed, low, high, erased)) is not None:
            if missing > gathered.seen and more:
                return False
            if missing > placed.begins:
                return True  # its record says what is missing
            # Bodies of a long append lie before their unit, among those of other appends.
            subject = self.names.of_session("p", owner)
            messages, _ = await self._fetch(owner, subject, missing, PAGE_MESSAGES, False)
            if not messages or messages[0].sequence != missing:
                return True
            gathered.bodies.update((message.sequence, message) for message in messages)
        return True

    async def _fetch(
        self, owner: str, subject: str, sequence: int, messages: int, leader: bool
    ) -> tuple[list[StoredMessage], bool]:
        """Messages from ``sequence`` on, and whether there may be more."""
        shard = self.names.shard(owner)
        if not leader:
            page = await self.reads.page(shard, subject, sequence, messages=messages)
            return page.messages, page.pending > 0
        found: list[StoredMessage] = []
        while len(found) < _LEADERS_MESSAGES:
            one = await self.reads.next(shard, subject, sequence)
            if one is None:
                return found, False
            found.append(one)
            sequence = one.sequence + 1
        return found, True

    async def _locate(self, owner: str, position: int) -> int:
        """A sequence at or before the unit with this position, and not far before it."""
        seen, later = self.positions.before(owner, position), self.positions.after(owner, position)
        low_first, low = (0, 1) if seen is None else seen
        if later is None:
            return low
        high_first, high = later
        shard, subject = self.names.shard(owner), self.names.of_session("r", owner)
        for number in range(_MOST_PROBES):
            if position - low_first <= _NEAR_RECORDS or high - low <= _NEAR_SEQUENCES:
                break
            share = (position - low_first) / (high_first - low_first) if number % 3 else 0.5
            probe = min(max(low + int((high - low) * share) - _NEAR_RECORDS, low + 1), high - 1)
            page = await self.reads.page(shard, subject, probe, messages=2)
            gathered = Gathered()
            gathered.add(page.messages)
            if not gathered.units:
                break
            unit, begins, _ = gathered.units[0]
            self.positions.add(owner, unit.first, begins)
            if unit.first <= position:
                low_first, low = unit.first, begins
                if position <= unit.last:
                    break
            else:
                high_first, high = unit.first, probe
        return low
