"""Writes a session's records into the target as they are, several appends under way at a time.

Every record is checked against its chain and its contents before it is sent, so a damaged one never
gets a new digest in the target. What the target holds already is where it goes on: an append is all
or nothing, so a copy that was killed left whole records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Literal, NamedTuple

import msgspec

from eventctx.errors import DecodeError, LogCorrupted, SessionDiffers
from eventctx.log.codec import decode_known
from eventctx.log.events import SessionDeleted
from eventctx.log.integrity import check_bodies
from eventctx.log.record import GENESIS, Draft, Record, follows
from eventctx.log.store import NO_STREAM, Address, Appended, EventStore, StreamInfo

MOST_PROBLEMS: Final = 1_000
"""Problems that a result lists; the others are counted."""

CopyStep = Literal["comparing", "copying", "checking"]

CopyProgress = Callable[[CopyStep, int, int], None]
"""Gets the step, and how far it is: sessions that were compared or checked, or records that were
copied, and the number of all (0: not known yet)."""


class CopyProblem(msgspec.Struct, frozen=True):
    """Why a session is not in the target as it is in the source; ``position`` is -1 for all of it.

    ``damage`` is whether stored records contradict their digests, in the source or the target.
    """

    session: str
    position: int
    text: str
    damage: bool = False


class CopyResult(msgspec.Struct, frozen=True):
    """The outcome of a copy of ``sessions``.

    ``copied`` are new in the target, ``continued`` had records there before, ``unchanged`` had all.
    ``deleted`` are marks of deletions that were set, ``left_out`` those that the target's store
    cannot hold. ``records`` and ``bytes`` (of payloads and contents) were written now. ``erased``
    contents were in the target and gone in the source. ``checked`` sessions were read back and are
    the source's, record by record. ``problems`` are the first ones of ``failed`` sessions.
    """

    sessions: int = 0
    copied: int = 0
    continued: int = 0
    unchanged: int = 0
    deleted: int = 0
    left_out: int = 0
    records: int = 0
    bytes: int = 0
    erased: int = 0
    checked: int = 0
    failed: int = 0
    problems: tuple[CopyProblem, ...] = ()

    @property
    def ok(self) -> bool:
        """True when every session is in the target as it is in the source."""
        return not self.failed


class CopyTally:
    """A result while it is made."""

    def __init__(self) -> None:
        self.sessions = self.copied = self.continued = self.unchanged = 0
        self.deleted = self.left_out = self.records = self.bytes = self.erased = self.checked = 0
        self._problems: dict[str, CopyProblem] = {}

    def failed(self, session: str) -> bool:
        """Whether a problem of the session was noted."""
        return session in self._problems

    def problem(self, session: str, position: int, text: str, *, damage: bool = False) -> None:
        """Note the first problem of a session."""
        self._problems.setdefault(session, CopyProblem(session, position, text, damage))

    def result(self) -> CopyResult:
        """The counts so far."""
        return CopyResult(
            self.sessions,
            self.copied,
            self.continued,
            self.unchanged,
            self.deleted,
            self.left_out,
            self.records,
            self.bytes,
            self.erased,
            self.checked,
            len(self._problems),
            tuple(self._problems.values())[:MOST_PROBLEMS],
        )


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
    check_bodies(
        record.stream,
        ((Address(position, index), body) for index, body in enumerate(record.bodies)),
    )


def _size(record: Record) -> int:
    contents = sum([len(body.data) for body in record.bodies if body.data is not None])
    return _RECORD_BYTES + len(record.payload) + contents


class Tombstone(NamedTuple):
    """The one record that is left of a deleted session, and what it says of those before it."""

    record: Record
    event: SessionDeleted

    @property
    def previous(self) -> bytes:
        """The digest of the last record before the deletion."""
        return bytes.fromhex(self.event.digest)


async def check_meeting(
    source: EventStore, info: StreamInfo, target: EventStore
) -> StreamInfo | None:
    """The session in the target; None if it is not there.

    Raises SessionDiffers where it is another one, LogCorrupted.
    """
    there = await target.head(info.stream)
    if there is None or (info.deleted and there.deleted):
        return there
    if there.deleted:
        raise _differs(info, "it was deleted there on purpose, and its name is not used again")
    if info.deleted:
        await _check_deletable(source, info, there)
        return there
    if (there.parent, there.forked_at) != (info.parent, info.forked_at):
        raise _differs(info, f"{_kind(info)} here, and {_kind(there)} there")
    shared = min(info.head, there.head)
    if await digest_at(source, info, shared) != await digest_at(target, there, shared):
        position = await _first_difference(source, info, target, there, shared)
        raise SessionDiffers(
            info.stream,
            position,
            f"from position {position} on it holds other records. Nothing was copied: copy into "
            "another store, or name the sessions that are to be copied",
        )
    return there


async def tombstone(store: EventStore, info: StreamInfo) -> Tombstone:
    """The record that is left of a deleted session. Raises LogCorrupted."""
    async for record in store.read(info.stream, start=info.head):
        try:
            event = decode_known(record)
            if isinstance(event, SessionDeleted) and follows(bytes.fromhex(event.digest), record):
                return Tombstone(record, event)
        except (DecodeError, ValueError):
            pass
    raise LogCorrupted(info.stream, info.head, "the record of the session's deletion is damaged")


async def digest_at(store: EventStore, info: StreamInfo, position: int) -> bytes:
    """The digest of a stream's record. Raises LogCorrupted where there is none."""
    if position == info.head:
        return info.digest
    async for record in store.read(info.stream, start=position, stop=position, bodies=False):
        return record.digest
    raise LogCorrupted(info.stream, position, "expected a record, found none")


async def _check_deletable(source: EventStore, info: StreamInfo, there: StreamInfo) -> None:
    """Check that what the target holds is just what was deleted in the source."""
    event = (await tombstone(source, info)).event
    if (there.head, there.digest.hex()) != (event.position, event.digest):
        raise _differs(
            info,
            f"it was deleted here at position {event.position}, and there it ends at "
            f"{there.head}; delete it there, too, and copy again",
        )


async def _first_difference(
    source: EventStore, info: StreamInfo, target: EventStore, there: StreamInfo, shared: int
) -> int:
    """The first position with different records; ``shared`` is one."""
    low, high = 0, shared
    while low < high:
        middle = (low + high) // 2
        if await digest_at(source, info, middle) == await digest_at(target, there, middle):
            low = middle + 1
        else:
            high = middle
    return low


def _kind(info: StreamInfo) -> str:
    return "no fork" if info.parent is None else f"a fork of {info.parent!r} at {info.forked_at}"


def _differs(info: StreamInfo, problem: str) -> SessionDiffers:
    return SessionDiffers(info.stream, -1, f"{problem}. Nothing was copied")
