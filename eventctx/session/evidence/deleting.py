"""Deletion: destroys all records of a session but one, which says so and keeps the chain."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import msgspec

from eventctx.errors import SessionWasDeleted, StreamNotFound
from eventctx.log.codec import encode_event
from eventctx.log.events import ABOUT_A_SESSION, SessionDeleted
from eventctx.log.record import Draft, Record
from eventctx.log.store import EventStore, StreamInfo
from eventctx.session.appends.pending import Clock
from eventctx.session.evidence.unfinished import ERASING


class ExpiredSession(msgspec.Struct, frozen=True):
    """A session whose last record of its use is older than a limit; ``last`` in UTC nanoseconds.

    ``kept_by`` are younger sessions that were forked from it, so that it has to stay.
    """

    session: str
    records: int
    last: int
    kept_by: tuple[str, ...] = ()


async def delete(
    store: EventStore,
    session: str,
    reason: str,
    clock: Clock,
    random: Callable[[int], bytes],
) -> Record:
    """Delete a session without forks. Raises StreamNotFound, SessionWasDeleted, InvalidSetting."""
    info = await store.head(session)
    if info is None:
        raise StreamNotFound(session)
    if info.deleted:
        raise SessionWasDeleted(session)
    own = info.head - (-1 if info.forked_at is None else info.forked_at)
    event = SessionDeleted(position=info.head, digest=info.digest.hex(), records=own, reason=reason)
    name, version, payload = encode_event(event)
    time = max(clock(), await last_time(store, info))
    await store.save_checkpoint(ERASING, 1)
    return await store.delete(session, Draft(random(16), name, version, time, payload), info.head)


async def forks_of(store: EventStore, session: str) -> list[str]:
    """The sessions that were forked from this one, and from those, the youngest fork first.

    Raises StreamNotFound.
    """
    found: list[str] = []
    waiting = [session]
    while waiting:
        fresh = [
            one for one in await store.forks(waiting.pop()) if one not in found and one != session
        ]
        found += fresh
        waiting += fresh
    return found[::-1]


async def expired(store: EventStore, before: int) -> list[ExpiredSession]:
    """The sessions whose last use is before ``before`` (UTC nanoseconds), forks first."""
    found = []
    async for info in store.streams():
        if info.deleted:
            continue
        last = await _last_use(store, info)
        if last < before:
            kept_by = tuple(
                [name for name in await forks_of(store, info.stream)
                 if not await _is_older(store, name, before)]
            )  # fmt: skip
            own = info.head - (-1 if info.forked_at is None else info.forked_at)
            found.append(ExpiredSession(info.stream, own, last, kept_by))
    return found[::-1]  # a fork was made after what it was forked from


async def _is_older(store: EventStore, session: str, before: int) -> bool:
    """Whether a session's last use is before ``before``, or it is gone by now."""
    info = await store.head(session)
    return info is None or info.deleted or await _last_use(store, info) < before


async def _last_use(store: EventStore, info: StreamInfo) -> int:
    """The time of the last record of a session's use, in UTC nanoseconds."""
    records: Any = store.read(info.stream, backward=True, bodies=False)
    async with aclosing(records):
        async for record in records:
            if record.type not in ABOUT_A_SESSION:
                return int(record.time)
    return info.created


async def last_time(store: EventStore, info: StreamInfo) -> int:
    """The time of a stream's last record, in UTC nanoseconds."""
    async for record in store.read(info.stream, start=info.head, bodies=False):
        return record.time
    return info.created
