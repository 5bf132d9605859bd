"""Writes a session's records into the target as they are, several appends under way at a time.

Every record is checked against its chain and its contents before it is sent, so a damaged one never
gets a new digest in the target. What the target holds already is where it goes on: an append is all
or nothing, so a copy that was killed left whole records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from typing import Final, NamedTuple

from eventctx.errors import LogCorrupted
from eventctx.log.integrity import check
from eventctx.log.record import GENESIS, Draft, Record, follows
from eventctx.log.store import NO_STREAM, Address, Appended, EventStore, StreamInfo
from eventctx.queries.copying.answers import CopyTally
from eventctx.queries.copying.meeting import digest_at

BATCH_RECORDS: Final = 256
BATCH_BYTES: Final = 4 * 2**20
MOST_UNDER_WAY: Final = 256
"""Appends that wait for the target's disk, at most: many short sessions share its commits."""
BYTES_UNDER_WAY: Final = 32 * 2**20
_RECORD_BYTES: Final = 512


class _UnderWay(NamedTuple):
    done: Awaitable[Appended]
    stream: str
    position: int
    digest: bytes
    size: int


class SessionWriter:
    """Appends records of the source to the target. ``settle`` waits for all of them."""

    def __init__(self, source: EventStore, target: EventStore, tally: CopyTally) -> None:
        self._source = source
        self._target = target
        self._tally = tally
        self._under_way: deque[_UnderWay] = deque()
        self._bytes = 0

    async def write(self, info: StreamInfo, there: StreamInfo | None) -> int:
        """Bring the target's session, now ``there``, up to ``info.head``; returns what was sent.

        Raises LogCorrupted for a record that must not be copied; those before it are.
        """
        first, previous = await self._begin(info, there)
        batch: list[Record] = []
        size = sent = 0
        damage: LogCorrupted | None = None
        try:
            async for record in self._source.read(info.stream, start=first, stop=info.head):
                _check_sound(record, first + sent + len(batch), previous)
                previous = record.digest
                if there is None and info.parent is not None and not sent:
                    await self._fork(info, record)
                    sent = 1
                    continue
                batch.append(record)
                size += _size(record)
                if len(batch) == BATCH_RECORDS or size >= BATCH_BYTES:
                    await self._send(info.stream, batch, size)
                    sent += len(batch)
                    batch, size = [], 0
        except LogCorrupted as error:
            damage = error
        if batch:
            await self._send(info.stream, batch, size)
            sent += len(batch)
        if damage is not None:
            raise damage
        if first + sent <= info.head:
            problem = f"expected records up to position {info.head}, found none from here on"
            raise LogCorrupted(info.stream, first + sent, problem)
        return sent

    async def settle(self, most: int = 0, most_bytes: int = 0) -> None:
        """Wait until at most ``most`` appends of ``most_bytes`` are under way.

        Raises what the target's append raises, and LogCorrupted for another digest than was sent.
        """
        while self._under_way and (len(self._under_way) > most or self._bytes > most_bytes):
            one = self._under_way.popleft()
            self._bytes -= one.size
            receipt = (await one.done).receipt
            if (receipt.position, receipt.digest) != (one.position, one.digest):
                problem = "the target's record has another digest than the one that was sent"
                raise LogCorrupted(one.stream, one.position, problem)

    async def _begin(self, info: StreamInfo, there: StreamInfo | None) -> tuple[int, bytes]:
        """The first position to write, and the digest before it."""
        if there is not None:
            return there.head + 1, there.digest
        if info.parent is None or info.forked_at is None:
            return 0, GENESIS
        return info.forked_at + 1, await digest_at(self._source, info, info.forked_at)

    async def _fork(self, info: StreamInfo, first: Record) -> None:
        assert info.parent is not None and info.forked_at is not None  # noqa: S101 - as called
        await self.settle()  # a fork needs the records of its parent
        done = await self._target.fork(info.parent, info.forked_at, info.stream, draft_of(first))
        if done.receipt.digest != first.digest:
            problem = "the target's record has another digest than the one that was sent"
            raise LogCorrupted(info.stream, first.position, problem)
        self._count([first], _size(first))

    async def _send(self, stream: str, batch: list[Record], size: int) -> None:
        first, last = batch[0].position, batch[-1]
        expected = NO_STREAM if first == 0 else first - 1
        done = self._target.append(stream, [draft_of(one) for one in batch], expected)
        self._under_way.append(_UnderWay(done, stream, last.position, last.digest, size))
        self._bytes += size
        self._count(batch, size)
        await self.settle(MOST_UNDER_WAY, BYTES_UNDER_WAY)

    def _count(self, batch: list[Record], size: int) -> None:
        self._tally.records += len(batch)
        self._tally.bytes += size - _RECORD_BYTES * len(batch)


def draft_of(record: Record) -> Draft:
    """The record without its place, with its own id, time and contents."""
    return Draft(
        record.id,
        record.type,
        record.version,
        record.time,
        record.payload,
        record.bodies,
        record.turn_id,
        record.span_id,
        record.parent_span_id,
        record.iteration,
    )


def _check_sound(record: Record, position: int, previous: bytes) -> None:
    if record.position != position:
        problem = f"expected a record, found the one of position {record.position}"
        raise LogCorrupted(record.stream, position, problem)
    if not follows(previous, record):
        problem = f"the {record.type} does not have the digest that follows from its fields"
        raise LogCorrupted(record.stream, position, problem)
    check(
        record.stream,
        ((Address(position, index), body) for index, body in enumerate(record.bodies)),
    )


def _size(record: Record) -> int:
    contents = sum([len(body.data) for body in record.bodies if body.data is not None])
    return _RECORD_BYTES + len(record.payload) + contents
