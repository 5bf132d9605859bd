"""Erases and deletes for an engine: tells listeners, and empties every cache of the process.

A deletion destroys all records of a session but one, which says so and keeps the chain. Invariant:
``ERASING`` is set in the store until the search index has forgotten the destroyed words, so a
process that is killed meanwhile leaves the rest to the next opening (``resume``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec

from eventctx.errors import SessionWasDeleted, StoreReadOnly, StoreUnavailable, StreamNotFound
from eventctx.log.codec import encode_event
from eventctx.log.events import ABOUT_A_SESSION, SessionDeleted
from eventctx.log.record import Draft, Record
from eventctx.log.store import Address, EventStore, StreamInfo
from eventctx.queries.receipts import ReceiptKeeper
from eventctx.session.erasure import ERASING
from eventctx.session.pending import Clock
from eventctx.stores.own_copies import destroy_tapes

if TYPE_CHECKING:
    from eventctx.search.recall import Recall
    from eventctx.session.erasure.erasing import ErasureResult
    from eventctx.session.sessions import Sessions


class ExpiredSession(msgspec.Struct, frozen=True):
    """A session whose last record of its use is older than a limit; ``last`` in UTC nanoseconds.

    ``kept_by`` are younger sessions that were forked from it, so that it has to stay.
    """

    session: str
    records: int
    last: int
    kept_by: tuple[str, ...] = ()


class PruningAnswer(msgspec.Struct, frozen=True):
    """Old sessions that were deleted, or would be, and those that a younger fork keeps."""

    deleted: bool
    sessions: list[ExpiredSession]
    kept: list[ExpiredSession]


async def delete_session(
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


_log: Final = logging.getLogger("eventctx.search")
_tapes_log: Final = logging.getLogger("eventctx.record")


class Destruction:
    """``published`` gets every record that an erasure or a deletion appended.

    Also what takes copies of another store's sessions, with what was destroyed in them
    (``CopyTarget``).
    """

    def __init__(
        self,
        store: EventStore,
        sessions: Sessions,
        receipts: ReceiptKeeper,
        recaller: Callable[[], Recall],
        published: Callable[[Record], None],
        clock: Clock,
        random: Callable[[int], bytes],
    ) -> None:
        self.store = store
        self._sessions = sessions
        self._receipts = receipts
        self._recaller = recaller
        self._published = published
        self._clock = clock
        self._random = random
        self.copied = receipts.copied

    async def erase(
        self, session: str, numbers: Sequence[int], reason: str, *, dry_run: bool
    ) -> ErasureResult:
        """See ``Engine.erase``."""
        from eventctx.session.erasure import erasing

        if dry_run:
            planned = await erasing.plan(self.store, session, numbers)
            return erasing.result_of(session, planned, len(planned.places), scrubbed=True)
        await self._sessions.flush(session)
        made, bodies, records = await erasing.erase(
            self.store, session, numbers, reason, self._clock, self._random
        )
        for record in records:
            self._receipts.stored(record)
        self._receipts.erased(one.stream for one in made.streams)
        await self._forget(records)
        scrubbed = await self.store.scrubbed()
        return erasing.result_of(session, made, bodies, scrubbed=scrubbed)

    async def delete(self, session: str, reason: str, *, forks: bool) -> list[str]:
        """See ``Engine.delete``."""
        names = [session]
        if forks:
            names = [*await forks_of(self.store, session), session]
        records: list[Record] = []
        for name in names:
            await self._sessions.close(name)
            record = await delete_session(self.store, name, reason, self._clock, self._random)
            records.append(record)
            self._receipts.deleted(record)
        await self._forget(records)
        return names

    async def erase_again(self, stream: str, bodies: Mapping[Address, bytes]) -> None:
        """Erase what was erased in the store that a session was copied from.

        The session holds the record that says so, or will.
        """
        from eventctx.queries.key_frames import key_frames

        await self.store.save_checkpoint(ERASING, 1)
        await self.store.erase({stream: bodies})
        for name in (stream, *await forks_of(self.store, stream)):
            await key_frames(self.store).forget(name)
            await self._sessions.renew(name)
        await self.finish()

    async def delete_again(self, stream: str, last: Draft, expected: int) -> None:
        """Delete what was deleted in the store that a session was copied from, with its record."""
        await self._sessions.close(stream)
        await self.store.save_checkpoint(ERASING, 1)
        record = await self.store.delete(stream, last, expected)
        self._receipts.deleted(record)
        await self._forget([record])

    async def _forget(self, records: Sequence[Record]) -> None:
        from eventctx.queries.key_frames import key_frames

        for record in records:
            await key_frames(self.store).forget(record.stream)
            await self._sessions.renew(record.stream)
            self._published(record)
        await self.finish()

    async def resume(self) -> None:
        """Finish what a process that was killed left undone; without the index go on all the same.

        The index is a cache: no search answers from one that was not brought up to date.
        """
        try:
            await self.finish()
        except StoreReadOnly:
            return
        except StoreUnavailable as error:
            _log.warning(
                "words of erased messages may still be in the search index; the next opening of "
                "the store removes them: %s",
                error,
            )

    async def finish(self) -> None:
        """Make index and tapes forget what was destroyed, now or by a process that was killed."""
        if await self.store.load_checkpoint(ERASING) != 1:
            return
        for path in await asyncio.to_thread(destroy_tapes, self._receipts.book):
            _tapes_log.warning("%s holds what was erased, and cannot be removed: remove it", path)
        recall = self._recaller()
        if recall.exists():
            await recall.forget_destroyed()
        await self.store.save_checkpoint(ERASING, 0)
