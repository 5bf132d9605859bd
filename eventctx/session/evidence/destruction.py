"""Erases and deletes for an engine: tells listeners, and lets every cache of the process forget.

What destroys is loaded by the first erasure or deletion: every engine has a ``Destruction``, for
``finish``, and few destroy anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from eventctx.errors import StoreReadOnly, StoreUnavailable
from eventctx.log.record import Draft, Record
from eventctx.log.store import Address, EventStore
from eventctx.session.appends.pending import Clock
from eventctx.session.evidence.receipt_keeper import ReceiptKeeper
from eventctx.session.evidence.unfinished import ERASING
from eventctx.session.sessions import Sessions

if TYPE_CHECKING:
    from eventctx.search.recall import Recall
    from eventctx.session.evidence.erasing import ErasureResult

_log: Final = logging.getLogger("eventctx.search")


class Destruction:
    """``published`` gets every record that an erasure or a deletion appended."""

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
        self._store = store
        self._sessions = sessions
        self._receipts = receipts
        self._recaller = recaller
        self._published = published
        self._clock = clock
        self._random = random

    async def erase(
        self, session: str, numbers: Sequence[int], reason: str, *, dry_run: bool
    ) -> ErasureResult:
        """See ``Engine.erase``."""
        from eventctx.session.evidence import erasing

        if dry_run:
            planned = await erasing.plan(self._store, session, numbers)
            return erasing.result_of(session, planned, len(planned.places), scrubbed=True)
        await self._sessions.flush(session)
        made, bodies, records = await erasing.erase(
            self._store, session, numbers, reason, self._clock, self._random
        )
        for record in records:
            self._receipts.stored(record)
        await self._forget(records)
        scrubbed = await self._store.scrubbed()
        return erasing.result_of(session, made, bodies, scrubbed=scrubbed)

    async def delete(self, session: str, reason: str, *, forks: bool) -> list[str]:
        """See ``Engine.delete``."""
        from eventctx.session.evidence import deleting

        names = [session]
        if forks:
            names = [*await deleting.forks_of(self._store, session), session]
        records: list[Record] = []
        for name in names:
            await self._sessions.close(name)
            records.append(
                await deleting.delete(self._store, name, reason, self._clock, self._random)
            )
            self._receipts.deleted(name)
        await self._forget(records)
        return names

    async def erase_again(self, stream: str, bodies: Mapping[Address, bytes]) -> None:
        """Erase what was erased in the store that a session was copied from.

        The session holds the record that says so, or will.
        """
        from eventctx.queries.key_frames import key_frames
        from eventctx.session.evidence import deleting

        await self._store.save_checkpoint(ERASING, 1)
        await self._store.erase({stream: bodies})
        for name in (stream, *await deleting.forks_of(self._store, stream)):
            await key_frames(self._store).forget(name)
            await self._sessions.renew(name)
        await self.finish()

    async def delete_again(self, stream: str, last: Draft, expected: int) -> None:
        """Delete what was deleted in the store that a session was copied from, with its record."""
        await self._sessions.close(stream)
        await self._store.save_checkpoint(ERASING, 1)
        record = await self._store.delete(stream, last, expected)
        self._receipts.deleted(stream)
        await self._forget([record])

    async def _forget(self, records: Sequence[Record]) -> None:
        from eventctx.queries.key_frames import key_frames

        for record in records:
            await key_frames(self._store).forget(record.stream)
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
        """Make the search index forget what was destroyed, now or by a process that was killed."""
        if await self._store.load_checkpoint(ERASING) != 1:
            return
        recall = self._recaller()
        if recall.exists():
            await recall.forget_destroyed()
        await self._store.save_checkpoint(ERASING, 0)
