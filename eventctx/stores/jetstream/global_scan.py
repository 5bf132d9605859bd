"""Reads of all sessions in the order of their global positions, and the subscriptions.

A shard is read message by message, so a gap is a deletion or a loss; the leader's list of deletions
tells which. Within one shard the sequences are the order. Of several shards none may be read
further than the shortest: a later append there would get a lower position than what was read. So a
reader first fills the short ones up.

The servers publish the headers of each stored unit once more (``<NAME>.live.>``). That message may
be lost, as when the connection breaks, so it only rings a bell, and the bell also rings once in a
while by itself. A subscription delivers only records that were read and checked like all others.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from eventctx.errors import StoreUnavailable, StreamNotFound
from eventctx.log.record import Record
from eventctx.stores.ack import Ack, Bell
from eventctx.stores.jetstream.connection import ServerLink
from eventctx.stores.jetstream.layout import decode_to_destroy, name_of, part_of, token
from eventctx.stores.jetstream.reading import SessionReader
from eventctx.stores.jetstream.retrying_reads import MOST_SUBJECTS, StoredMessage
from eventctx.stores.jetstream.verifying import (
    Erased,
    Gathered,
    Incomplete,
    PlacedUnit,
    records_of,
)

_LEADERS_MESSAGES = 256
_BEHIND_THE_END = 8

Fill = Callable[[int, int], Awaitable[None]]
"""Fills a shard up to a sequence."""


class GlobalScan:
    """All sessions of a store; ``fill`` is None where nothing may be written."""

    def __init__(self, reader: SessionReader, fill: Fill | None) -> None:
        self.reader = reader
        self.fill = fill
        self.deleted: dict[int, tuple[int, Sequence[int]]] = {}
        """Of each shard, the first sequence that is not deleted, and the deleted ones after it."""

    async def scan(self, *, after: int = -1, limit: int | None = None, bodies: bool = True) -> All:
        """Begin a read of everything stored now; see ``EventStore.read_all``."""
        names = self.reader.names
        ends = [await self.end(shard) for shard in range(names.shards)]
        if names.shards > 1 and self.fill is not None:
            furthest = max(ends)
            for shard, end in enumerate(ends):
                if end < furthest:
                    await self.fill(shard, furthest)
                    ends[shard] = await self.end(shard)
        # The first place that the next message of any shard could take.
        fence = min((end + 1) * names.shards + shard for shard, end in enumerate(ends))
        scans = []
        for shard, end in enumerate(ends):
            # Sequences of this shard whose places lie before the fence.
            upto = min(end, (fence - 1 - shard) // names.shards)
            scans.append(_Shard(self, shard, after, upto, bodies))
        return All(scans, 2**62 if limit is None else max(limit, 0))

    async def end(self, shard: int) -> int:
        """The last sequence of a shard, from a checked leader."""
        return (await self.reader.heads.state(shard)).last_seq

    async def was_deleted(self, shard: int, first: int, last: int) -> bool:
        """Whether the leader has no message at all from ``first`` to ``last``."""
        for fresh in (False, True):
            if fresh or shard not in self.deleted:
                state = (await self.reader.reads.status(shard, deleted=True)).state
                self.deleted[shard] = (state.first_seq, state.deleted)
            begins, deleted = self.deleted[shard]
            at = max(first, begins)
            if at > last:
                return True
            place = bisect_left(deleted, at)
            count = last - at + 1
            if deleted[place : place + 1] == (at,) and deleted[
                place + count - 1 : place + count
            ] == (last,):
                return True
        return False


class All:
    """One read of all sessions, page by page."""

    def __init__(self, scans: Sequence[_Shard], left: int) -> None:
        self._scans = scans
        self._left = left

    async def page(self) -> list[Record]:
        """The next records; none at the end. Raises LogCorrupted, StoreUnavailable."""
        if self._left <= 0:
            return []
        await asyncio.gather(*[scan.fetch() for scan in self._scans if not scan.ready])
        waiting = [scan.ready for scan in self._scans]
        if len(waiting) == 1:
            found, waiting[0][:] = waiting[0][:], []
        else:
            # The lowest end of all shards that have more: beyond it records of another may follow.
            last = min((s.ready[-1].global_position for s in self._scans if s.ready), default=-1)
            found = []
            for ready in waiting:
                count = 0
                while count < len(ready) and ready[count].global_position <= last:
                    count += 1
                found += ready[:count]
                del ready[:count]
            found.sort(key=lambda record: record.global_position)
        found = found[: self._left]
        self._left -= len(found)
        return found


class _Shard:
    """The records of one shard after ``after``, up to the sequence ``upto``."""

    def __init__(self, scan: GlobalScan, shard: int, after: int, upto: int, data: bool) -> None:
        self._scan = scan
        self._reader = scan.reader
        self._shard = shard
        self._after = after
        self._upto = upto
        self._data = data
        self.ready: list[Record] = []
        self._at = 1
        if after >= 0:
            _, sequence, _ = self._reader.names.place(after)
            # The unit at ``sequence`` may have further records, and parts before it.
            self._at = max(sequence, 1)
        self._begun = after < 0
        self._prefix = f"{self._reader.names.prefix}.{shard}."

    async def fetch(self) -> None:
        """Add the next records to ``ready``; none are there at the end."""
        if not self._begun:
            self._begun = True
            reads, units = self._reader.reads, self._prefix + "r.>"
            page = await reads.page(self._shard, units, self._at, messages=1)
            first = page.messages[0] if page.messages else None
            if first is None or first.sequence != self._at:  # the replica may lag
                first = await reads.next(self._shard, units, self._at)
            if first is not None and first.sequence == self._at:
                number, _ = part_of(first.ours)
                self._at -= number - 1
        while self._at <= self._upto and not self.ready:
            tries = self._reader.tries(self._shard)
            while True:
                try:
                    await self._page(tries.leader)
                    break
                except Incomplete as damage:
                    self._reader.short_reads += 1
                    await tries.after(damage, "", damage.position)

    async def _page(self, leader: bool) -> None:
        messages: list[StoredMessage] = []
        at = self._at
        while True:
            found = await self._messages(leader, at)
            messages += found
            if await self._put_together(messages):
                return
            if not found:
                # A leader may be in the middle of an append.
                problem = f"message {at} of shard {self._shard} is missing"
                raise Incomplete(-1, problem, at)
            at = messages[-1].sequence + 1

    async def _put_together(self, messages: Sequence[StoredMessage]) -> bool:
        """Make records of the next messages; true if any was made or passed."""
        seen = messages[-1].sequence if messages else self._upto
        sessions: dict[str, Gathered] = {}
        bodies: dict[int, StoredMessage] = {}
        units: list[tuple[str, PlacedUnit]] = []
        for message in messages:
            kind, _, whose = message.subject.removeprefix(self._prefix).partition(".")
            # Messages after the end may be contents, and parts, of units that began before it.
            if kind in ("b", "p"):
                bodies[message.sequence] = message
            elif kind == "r" and (message.sequence <= self._upto or whose in sessions):
                of_session = sessions.setdefault(whose, Gathered())
                before = len(of_session.units)
                of_session.add([message])
                if len(of_session.units) > before and message.sequence <= self._upto:
                    units.append((whose, of_session.units[-1]))
        hidden, erased = await self._hidden(), await self._read_erasures(sessions)
        gathered = Gathered()
        gathered.bodies, gathered.seen = bodies, seen
        ready: list[Record] = []
        begun = [one.begun for one in sessions.values() if one.begun is not None]
        following = min([seen + 1, *begun])
        for whose, placed in units:
            if placed.unit.deleted:
                hidden[whose] = max(hidden.get(whose, 0), placed.begins)
        for whose, placed in units:
            if placed.begins < hidden.get(whose, 0):
                continue
            found = await self._records(whose, placed, gathered, erased.get(whose, {}))
            if found is None:
                following = min(following, placed.begins)
                break
            ready += found
        if following <= self._at and not ready:
            return False
        self.ready = ready
        self._at = max(following, self._at)
        return True

    async def _messages(self, leader: bool, at: int) -> list[StoredMessage]:
        """The messages from ``at`` on. Raises Incomplete for a gap that is no deletion."""
        reads = self._reader.reads
        found: list[StoredMessage] = []
        more = True
        if leader:
            sequence, last = at, max(self._upto, at + _BEHIND_THE_END)
            while more and sequence <= last and len(found) < _LEADERS_MESSAGES:
                one = await reads.next(self._shard, self._prefix + ">", sequence)
                more = one is not None
                if one is not None:
                    found.append(one)
                    sequence = one.sequence + 1
        else:
            page = await reads.page(self._shard, self._prefix + ">", at)
            found, more = page.messages, page.pending > 0
        for message in found:
            await self._check_gap(at, message.sequence - 1)
            at = message.sequence + 1
        if not more:
            await self._check_gap(at, self._upto)
        return found

    async def _check_gap(self, first: int, last: int) -> None:
        last = min(last, self._upto)
        if first <= last and not await self._scan.was_deleted(self._shard, first, last):
            raise Incomplete(-1, f"messages {first} to {last} of shard {self._shard} are missing")

    async def _hidden(self) -> dict[str, int]:
        """Deleted sessions, each with the sequence before which its messages do not count."""
        found: dict[str, int] = {}
        page = await self._reader.reads.page(self._shard, self._prefix + "x", 1)
        for message in page.messages:
            try:
                order = decode_to_destroy(message.data)
            except msgspec.MsgspecError:
                continue
            if order.session is not None:
                gone = token(order.session)
                # The one record that is left of it follows this message directly.
                found[gone] = max(found.get(gone, 0), message.sequence)
        return found

    async def _read_erasures(self, sessions: dict[str, Gathered]) -> dict[str, Erased]:
        """The erasures of these sessions' bodies."""
        found: dict[str, Erased] = {}
        owners = list(sessions)
        for start in range(0, len(owners), MOST_SUBJECTS // 2):
            some = owners[start : start + MOST_SUBJECTS // 2]
            # A subject that certainly has a message makes the replica say how far it is.
            asked = [f"{self._prefix}e.{whose}" for whose in some] + [f"{self._prefix}r.{some[0]}"]
            for message in await self._reader.reads.lasts(self._shard, asked, self._upto):
                kind, _, whose = message.subject.removeprefix(self._prefix).partition(".")
                if kind == "e":
                    found[whose] = await self._reader.owners.erased(name_of(whose))
        return found

    async def _records(
        self, whose: str, placed: PlacedUnit, gathered: Gathered, erased: Erased
    ) -> list[Record] | None:
        """The records of a unit after ``after``; None if its bodies come with the next page."""
        names, stream = self._reader.names, name_of(whose)
        low, high = placed.unit.first, placed.unit.last
        base = names.global_position(self._shard, placed.sequence, 0)
        if self._after >= base:
            low += self._after - base + 1
        if low > high:
            return []
        while (missing := gathered.missing(placed, low, high, erased)) is not None:
            if missing > gathered.seen:
                return None
            if missing > placed.begins:
                erased = await self._reader.owners.erased(stream)
                if (left := gathered.missing(placed, low, high, erased)) is None:
                    break
                raise Incomplete(low, f"message {left}, a content of {stream!r}, is missing")
            subject = f"{self._prefix}p.{whose}"
            page = await self._reader.reads.page(self._shard, subject, missing)
            if not page.messages or page.messages[0].sequence != missing:
                raise Incomplete(low, f"message {missing}, a content of {stream!r}, is missing")
            gathered.bodies.update((message.sequence, message) for message in page.messages)
        shard = self._shard
        return records_of(placed, gathered, erased, names, shard, stream, low, high, self._data)


POLL_SECONDS: Final = 1.0
"""Seconds after which a subscription looks without a bell."""

_PAGE = 1000


class Subscriptions:
    """The subscriptions of one store; they can be used from any event loop."""

    def __init__(self, link: ServerLink, scan: GlobalScan) -> None:
        self._link = link
        self._scan = scan
        self._reader = scan.reader
        self._all = Bell()
        self._bells: dict[str, Bell] = {}
        self._watchers: dict[str, int] = {}
        self._subscription: Subscription | None = None
        self._poll: asyncio.Task[None] | None = None
        self._closed = False

    def close(self) -> None:
        """End every subscription, before the connection is closed. Callable from any thread."""
        self._closed = True
        self.ring()

    def ring(self) -> None:
        """Wake every subscription. Callable from any thread."""
        self._all.ring()
        for bell in list(self._bells.values()):
            bell.ring()

    def listen(self, stream: str | None) -> Ack[None]:
        """The ack that is settled by the next append to ``stream``, or to any."""
        return self._all.listen() if stream is None else self._bells[token(stream)].listen()

    async def subscribe(
        self, stream: str | None, after: int, bodies: bool
    ) -> AsyncGenerator[Record, None]:
        """See ``EventStore.subscribe``. Waits for a stream that does not exist yet."""
        key = "" if stream is None else token(stream)
        try:
            await self._link.run(self._watch(key))
            while not self._closed:
                bell = self.listen(stream)
                page = await self._link.run(self._news(stream, after, bodies))
                for record in page:
                    after = record.global_position if stream is None else record.position
                    yield record
                if not page:
                    await bell
        except StoreUnavailable:
            if not self._closed:
                raise
        finally:
            if not self._closed:
                self._link.run(self._unwatch(key))

    async def _news(self, stream: str | None, after: int, bodies: bool) -> list[Record]:
        if stream is None:
            return await (await self._scan.scan(after=after, limit=_PAGE, bodies=bodies)).page()
        try:
            scan = await self._reader.scan(stream, start=after + 1, limit=_PAGE, bodies=bodies)
        except StreamNotFound:
            return []
        return await scan.page()

    async def _watch(self, key: str) -> None:
        self._watchers[key] = self._watchers.get(key, 0) + 1
        if key:
            self._bells.setdefault(key, Bell())
        if self._poll is None:
            self._poll = self._link.keep(self._look())
            live = f"{self._link.names.prefix}.live.>"
            self._subscription = await self._link.client.subscribe(live, cb=self._heard)

    async def _unwatch(self, key: str) -> None:
        self._watchers[key] -= 1
        if self._watchers[key] > 0:
            return
        del self._watchers[key]
        self._bells.pop(key, None)
        if not self._watchers and self._poll is not None:
            self._poll.cancel()
            self._poll = None
            if self._subscription is not None:
                gone, self._subscription = self._subscription, None
                await gone.unsubscribe()

    async def _heard(self, message: Msg) -> None:
        bell = self._bells.get(message.subject.rpartition(".")[2])
        if bell is not None:
            bell.ring()
        self._all.ring()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.ring()
