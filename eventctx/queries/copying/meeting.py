"""How a session of the source stands in the target: not at all, a part of it, all, or another one.

Digests tell: each covers all records before it, so two streams with one digest at a position hold
the same records up to there.
"""

from __future__ import annotations

from typing import NamedTuple

from eventctx.errors import DecodeError, LogCorrupted, SessionDiffers
from eventctx.log.codec import decode_known
from eventctx.log.events import SessionDeleted
from eventctx.log.record import Record, follows
from eventctx.log.store import EventStore, StreamInfo


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
    """How the session stands in the target; None if it is not there.

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
    """What is left of a deleted session. Raises LogCorrupted."""
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
