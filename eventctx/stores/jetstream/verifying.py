"""The last unit of a session, from a leader whose own files are complete.

A server that was stopped, and whose files were damaged before it started again, comes back without
the messages of the damaged blocks. It is not repaired, it may be elected the leader, and then it
answers as if it had everything. Measured with nats-server 2.15.1: a session of 4,000 messages
ended at 2,000, or did not exist. So every leader is checked:

- It must have every message that was ever stored, except the deleted ones. The ledger of the shard
  counts each deletion before it is carried out, so more gaps than that are a loss.
- It must know every message of the session that this process has seen.

A leader that was just elected or deposed, or that starts again after all servers died, may have an
append in part, or not yet. So a missing message is a doubt until the leader is settled
(``ReadTries``), and damage only then.

A unit and its bodies are put together from messages here, too (``Gathered``).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from eventctx.errors import LogCorrupted, StoreUnavailable
from eventctx.log.record import Body, Record
from eventctx.stores.jetstream.layout import (
    BodyPlace,
    Names,
    Unit,
    WireMessage,
    born_erased,
    decode_ledger,
    decode_unit,
    joined_body,
    joined_facts,
    name_of,
    part_of,
    places,
    to_record,
)
from eventctx.stores.jetstream.retrying_reads import (
    RetryingReads,
    StoredMessage,
    StreamState,
    StreamStatus,
)

Erased = Mapping[tuple[int, int], bytes]
"""The bodies of a session that were erased, by position and number, and what facts they keep."""

_BODIES: Final = ("b", "p")


class Incomplete(Exception):
    """Stored messages are missing: those of ``position``, as ``problem`` says.

    ``sequence`` is the first that is missing, if that is known.
    """

    def __init__(self, position: int, problem: str, sequence: int = 0) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem
        self.sequence = sequence


class PlacedUnit(NamedTuple):
    """A unit whose messages are those from ``begins`` to ``sequence``."""

    unit: Unit
    begins: int
    sequence: int


class Gathered:
    """Messages of one session, in order; the units among them, and messages of their bodies.

    Parts of a unit that began before the first message are passed over.
    """

    def __init__(self) -> None:
        self.units: list[PlacedUnit] = []
        self.bodies: dict[int, StoredMessage] = {}
        self.seen = 0
        """The last sequence: a message up to there that is not here was not stored."""
        self._parts: list[StoredMessage] = []

    def add(self, messages: Iterable[StoredMessage]) -> None:
        """Take the next messages. Raises Incomplete for a unit that cannot be read."""
        for message in messages:
            self.seen = message.sequence
            kind = message.subject.rsplit(".", 2)[-2]
            if kind == "r":
                self._unit(message)
            elif kind in _BODIES:
                self.bodies[message.sequence] = message

    def _unit(self, message: StoredMessage) -> None:
        position = self.units[-1].unit.last + 1 if self.units else -1
        try:
            number, count = part_of(message.ours)
            if number != len(self._parts) + 1:
                self._parts.clear()
                if number != 1:
                    return
            self._parts.append(message)
            if number < count:
                return
            unit = decode_unit(b"".join([part.data for part in self._parts]))
            if not unit.records:
                raise ValueError("expected records, found none")
        except (ValueError, msgspec.MsgspecError) as error:
            raise Incomplete(position, f"message {message.sequence} is damaged: {error}") from error
        self.units.append(PlacedUnit(unit, self._parts[0].sequence, message.sequence))
        self._parts.clear()

    @property
    def begun(self) -> int | None:
        """Where a unit begins of which parts are still to come; None if there is no such unit."""
        return self._parts[0].sequence if self._parts else None

    def missing(self, unit: PlacedUnit, low: int, high: int, erased: Erased) -> int | None:
        """The first sequence of a body of the unit's records that is not here, and not erased.

        Of the records from ``low`` to ``high``.
        """
        for place in places(unit.unit, unit.sequence):
            if low <= place.position <= high and (place.position, place.number) not in erased:
                for sequence in range(place.sequence, place.sequence + place.messages):
                    if sequence not in self.bodies:
                        return sequence
        return None


def records_of(
    unit: PlacedUnit,
    gathered: Gathered,
    erased: Erased,
    names: Names,
    shard: int,
    stream: str,
    low: int,
    high: int,
    data: bool,
) -> list[Record]:
    """The records of a unit from position ``low`` to ``high``, as those of ``stream``.

    Raises Incomplete when messages of a body are missing or damaged.
    """
    by_record: dict[int, tuple[Body, ...]] = {}
    for place in places(unit.unit, unit.sequence):
        position = place.position
        if low <= position <= high:
            body = _body(place, gathered.bodies, erased, data)
            by_record[position] = (*by_record.get(position, ()), body)
    first = unit.unit.first
    base = names.global_position(shard, unit.sequence, 0) - first
    records = unit.unit.records
    return [
        to_record(
            records[position - first],
            stream,
            position,
            base + position,
            by_record.get(position, ()),
        )
        for position in range(max(low, first), min(high, unit.unit.last) + 1)
    ]


def _body(
    place: BodyPlace, bodies: Mapping[int, StoredMessage], erased: Erased, data: bool
) -> Body:
    facts = erased.get((place.position, place.number)) if erased else None
    if facts is not None:
        return Body(place.digest, facts, erased=True)
    try:
        messages = [bodies[place.sequence + number] for number in range(place.messages)]
        headers = [message.ours for message in messages]
        if data:
            pairs = zip(headers, messages, strict=True)
            return joined_body(place.digest, [WireMessage(own, found.data) for own, found in pairs])
        return Body(place.digest, joined_facts(headers), erased=born_erased(headers[0]))
    except KeyError as error:
        problem = f"message {error} with its content {place.number} is missing"
        raise Incomplete(place.position, problem, int(error.args[0])) from error
    except ValueError as error:
        problem = f"the message with its content {place.number} is damaged: {error}"
    raise Incomplete(place.position, problem)


SOUND_SECONDS: Final = 1.0
"""Seconds for which the result of a check of a leader is trusted."""

_MOST_SEEN = 100_000
_PAUSE_SECONDS = 0.1
_SETTLED_SECONDS = 1.0
"""Seconds for which one server must lead and hear of the others before a gap counts as damage."""

_REPLICAS_PAUSES: Final = (0.0, 0.002, 0.01, 0.03, 0.1, 0.2)
"""Seconds before a replica is asked again; then the leader is asked."""


class SessionHead(NamedTuple):
    """The last unit of a session: where it begins, and where its last message lies."""

    unit: Unit
    begins: int
    sequence: int

    @property
    def position(self) -> int:
        """The position of the session's last record."""
        return self.unit.last

    @property
    def digest(self) -> bytes:
        """The digest of the session's last record."""
        return self.unit.records[-1].digest

    @property
    def event(self) -> bytes:
        """The event id of the session's last record."""
        return self.unit.records[-1].id

    @property
    def deleted(self) -> bool:
        """Whether the session was deleted, and this is the record that says so."""
        return self.unit.deleted


class SessionEnds:
    """Asks the leaders for the ends of sessions, and checks the leaders."""

    def __init__(self, reads: RetryingReads) -> None:
        self._reads = reads
        self._names = reads.names
        self._seen: OrderedDict[str, int] = OrderedDict()
        self._sound: dict[int, float] = {}
        self._reached: dict[int, int] = {}
        """The last sequence of each shard that a leader had."""

    def saw(self, session: str, sequence: int) -> None:
        """Note that a unit of the session is stored at ``sequence``: it may not go again."""
        if self._seen.get(session, 0) < sequence:
            self._seen[session] = sequence
        self._seen.move_to_end(session)
        while len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)

    async def head(self, session: str) -> SessionHead | None:
        """The last unit of a session; None if there is none.

        Raises LogCorrupted when the leader lacks messages, and StoreUnavailable.
        """
        shard = self._names.shard(session)
        subject = self._names.of_session("r", session)
        known = self._seen.get(session, 0)
        until = time.monotonic() + self._reads.patience
        while True:
            found = await self.last(shard, subject)
            sequence = 0 if found is None else found.sequence
            await self.check(shard, not known or sequence < known)
            if sequence >= known:
                break
            # Its files are complete and this message is missing: it was deposed without knowing it.
            if time.monotonic() > until:
                raise StoreUnavailable(
                    f"session {session!r}: the leader of {self._names.stream(shard)} is at message "
                    f"{sequence}, behind {known}, which was stored: it lost touch with the others"
                )
            await asyncio.sleep(_PAUSE_SECONDS)
        if found is None:
            return None
        self.saw(session, sequence)
        return await self._whole(session, shard, subject, found)

    async def last(self, shard: int, subject: str) -> StoredMessage | None:
        """The last message of a subject, from the leader; None only if there is none.

        Raises LogCorrupted when the leader cannot read it.
        """
        found = await self._reads.last(shard, subject)
        # The server says "no message found" of a message with a wrong checksum, too, but counts it.
        if found is None and await self._reads.count(shard, subject):
            found = await self._reads.last(shard, subject)  # unless it came in between
            if found is None:
                raise LogCorrupted(
                    name_of(subject.rpartition(".")[2]),
                    -1,
                    f"the leader of {self._names.stream(shard)!r} has the last message of "
                    f"{subject!r} and cannot read it: its disk is damaged",
                )
        return found

    async def _whole(
        self, session: str, shard: int, subject: str, last: StoredMessage
    ) -> SessionHead:
        messages = [last]
        try:
            number, count = part_of(last.ours)
            begins = last.sequence - count + 1
            for sequence in range(begins, last.sequence):
                part = await self._reads.next(shard, subject, sequence)
                if part is None or part.sequence != sequence:
                    raise ValueError(f"expected {count} parts, found {number}")
                messages.insert(-1, part)
            unit = decode_unit(b"".join([message.data for message in messages]))
        except (ValueError, msgspec.MsgspecError) as error:
            problem = f"message {last.sequence} of {subject} is damaged: {error}"
            raise LogCorrupted(session, -1, problem) from error
        return SessionHead(unit, begins, last.sequence)

    async def check(self, shard: int, now: bool = True) -> None:
        """Check that the leader of a shard has all its messages; by default ``now``.

        Raises LogCorrupted.
        """
        if now or time.monotonic() >= self._sound.get(shard, 0.0):
            await self.state(shard)

    async def state(self, shard: int) -> StreamState:
        """The state of a shard's leader, after the check that nothing is missing.

        Raises LogCorrupted, and StoreUnavailable when every leader lags behind an earlier one.
        """
        return (await self.status(shard)).state

    async def current(self, shard: int) -> bool:
        """Whether the leader of a shard hears of a majority, so that no other can lead."""
        return (await self.status(shard)).cluster.current

    async def status(self, shard: int) -> StreamStatus:
        """The same, with the leader's name and its contact to the others."""
        until = time.monotonic() + self._reads.patience
        while True:
            # The state first, the ledger second: a deletion between the two reads is then in the
            # ledger and not yet a gap. The other order would report it as a loss.
            status = await self._reads.status(shard)
            lacks = status.state.gaps and status.state.gaps - await self.deletions(shard)
            known, last = self._reached.get(shard, 0), status.state.last_seq
            if lacks > 0:
                stream, leader = self._names.stream(shard), status.cluster.leader or "its leader"
                raise LogCorrupted(
                    "",
                    -1,
                    f"server {leader!r} lacks {lacks} of the messages of {stream!r}, "
                    "which it leads, and nobody deleted them: stop it, remove its JetStream folder "
                    "(store_dir), and start it: it copies everything from the others",
                )
            if last >= known:
                break
            if time.monotonic() > until:
                raise StoreUnavailable(
                    f"the leader of {self._names.stream(shard)} ends at message {last}, behind "
                    f"{known}, which was stored: it lost touch with the others"
                )
            await asyncio.sleep(_PAUSE_SECONDS)
        self._reached[shard] = last
        self._sound[shard] = time.monotonic() + SOUND_SECONDS
        return status

    async def deletions(self, shard: int) -> int:
        """How many messages of a shard were ever ordered to be deleted."""
        found = await self._reads.last(shard, self._names.of_shard("d", shard))
        try:
            return 0 if found is None else decode_ledger(found.data).total
        except msgspec.MsgspecError as error:
            stream = self._names.stream(shard)
            raise LogCorrupted("", -1, f"the ledger of {stream!r} is damaged: {error}") from error


class ReadTries:
    """Tries of one read with missing messages: first from replicas, then from the leader.

    A message that the leader lacks is asked for again until the leader is settled: one server has
    led for a while, hears of the others, and has later messages than the missing one.
    """

    def __init__(self, heads: SessionEnds, shard: int, patience: float) -> None:
        self._heads = heads
        self._shard = shard
        self._pauses = list(_REPLICAS_PAUSES)
        self._until = time.monotonic() + patience
        self._settled: tuple[str, float] | None = None

    @property
    def leader(self) -> bool:
        """Whether the leader is to be asked now, message by message."""
        return not self._pauses

    async def after(self, damage: Incomplete, stream: str, position: int) -> None:
        """Pause after a try with missing messages.

        Raises LogCorrupted if it is lost, and StoreUnavailable if that cannot be known in time.
        """
        if self._pauses:
            await asyncio.sleep(self._pauses.pop(0))
            return
        status = await self._heads.status(self._shard)
        now, leader = time.monotonic(), status.cluster.leader
        # A leader without a majority, or one that has not come so far, may still get the message.
        if not status.cluster.current or status.state.last_seq < damage.sequence:
            self._settled = None
        elif self._settled is None or self._settled[0] != leader:
            self._settled = (leader, now)
        elif now - self._settled[1] >= _SETTLED_SECONDS:
            raise LogCorrupted(stream, position, damage.problem) from damage
        if now > self._until:
            raise StoreUnavailable(
                f"{damage.problem}; its leader {leader!r}, at message {status.state.last_seq}, has "
                "no touch with the others, or has not caught up: see whether all servers run"
            ) from damage
        await asyncio.sleep(_PAUSE_SECONDS)
