"""The last unit of a session, from a leader whose own files are whole.

A server that was stopped, and whose files were damaged before it started again, comes back without
the messages of the damaged blocks. It is not repaired, it may be elected the leader, and then it
answers as if what it has were all. Measured with nats-server 2.15.1: a session of 4,000 messages
ended at 2,000, or did not exist. So no leader is believed unseen:

- It must have every message that was ever stored but those that were deleted, and every deletion
  was entered in the ledger of the shard before it was carried out.
- It must know what this process has seen of the session before.

A leader that was just elected, or deposed, or that starts again after all servers died, may have an
append in part, or not yet. So what it lacks is a doubt while it is not settled, not damage.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Final, NamedTuple

import msgspec

from eventctx.errors import LogCorrupted, StoreUnavailable
from eventctx.stores.jetstream.reads.asking import RetryingReads, StreamState, StreamStatus
from eventctx.stores.jetstream.reads.units import Incomplete
from eventctx.stores.jetstream.wire.collecting import StoredMessage
from eventctx.stores.jetstream.wire.layout import (
    Unit,
    decode_ledger,
    decode_unit,
    name_of,
    part_of,
)

SOUND_SECONDS: Final = 1.0
"""Seconds for which a leader that was found whole is believed to lead, and to be whole."""

_MOST_SEEN = 100_000
_PAUSE_SECONDS = 0.1
_SETTLED_SECONDS = 1.0
"""Seconds in which one server leads, and hears of the others, until what it lacks is damage."""

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

    def __init__(self, asking: RetryingReads) -> None:
        self._asking = asking
        self._names = asking.names
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
        until = time.monotonic() + self._asking.patience
        while True:
            found = await self.last(shard, subject)
            sequence = 0 if found is None else found.sequence
            await self.check(shard, not known or sequence < known)
            if sequence >= known:
                break
            # It has all of its messages, and not this one: it was deposed, and has not heard of it.
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
        found = await self._asking.last(shard, subject)
        # It says "no message found" of one whose checksum is wrong, too, but counts it.
        if found is None and await self._asking.count(shard, subject):
            found = await self._asking.last(shard, subject)  # unless it came in between
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
                part = await self._asking.next(shard, subject, sequence)
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
        """What the leader of a shard has, after the check that this is all.

        Raises LogCorrupted, and StoreUnavailable when every leader is behind what one had before.
        """
        return (await self.status(shard)).state

    async def current(self, shard: int) -> bool:
        """Whether the leader of a shard hears of the others, so that none can lead in its place."""
        return (await self.status(shard)).cluster.current

    async def status(self, shard: int) -> StreamStatus:
        """The same, with who leads and whom it hears of."""
        until = time.monotonic() + self._asking.patience
        while True:
            # In this order: a deletion is entered in the ledger before it is carried out.
            status = await self._asking.status(shard)
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
        """How many messages of a shard were ever deleted, or are about to be."""
        found = await self._asking.last(shard, self._names.of_shard("d", shard))
        try:
            return 0 if found is None else decode_ledger(found.data).total
        except msgspec.MsgspecError as error:
            stream = self._names.stream(shard)
            raise LogCorrupted("", -1, f"the ledger of {stream!r} is damaged: {error}") from error


class ReadTries:
    """Tries of one read whose messages did not all come: from replicas, then from the leader.

    What the leader lacks is asked for again until it is settled: one server has led for a while,
    hears of the others, and is as far as the message that is missing.
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
        """Pause behind a try in which something was missing.

        Raises LogCorrupted if it is lost, and StoreUnavailable if that cannot be known in time.
        """
        if self._pauses:
            await asyncio.sleep(self._pauses.pop(0))
            return
        status = await self._heads.status(self._shard)
        now, leader = time.monotonic(), status.cluster.leader
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
