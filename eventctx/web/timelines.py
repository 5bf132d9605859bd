"""The timelines that pages look at, extended by what was appended since they were asked for.

Key frames answer for any position, but fold up to a thousand records for it. The states that pages
were sent last are held here, so that a session that grows costs its new records and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from eventctx.aio import KeyedLock
from eventctx.errors import StreamNotFound
from eventctx.log.store import EventStore
from eventctx.projections.timeline.columns import Document
from eventctx.projections.timeline.fold import TimelineState
from eventctx.queries.key_frames import key_frames, timeline_document

_HELD: Final = 64
"""States that pages were sent last, of all sessions; each shares nearly all with the next."""


class Timelines:
    """The timelines of one store's sessions."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._frames = key_frames(store)
        self._held: OrderedDict[tuple[str, int], TimelineState] = OrderedDict()
        self._folding = KeyedLock()

    async def document(self, session: str, after: int = -1) -> Document:
        """The document of a session as it is now, or what continues that of position ``after``.

        Raises StreamNotFound, and InvalidSetting for a position that no document ends at.
        """
        return await timeline_document(self.at, session, None if after < 0 else after)

    async def at(self, session: str, position: int | None = None) -> TimelineState:
        """The timeline after the record at ``position``, or after the last one.

        Raises StreamNotFound.
        """
        if position is not None:
            held = self._held.get((session, position))
            return await self._frames.at(session, position) if held is None else held
        head = await self._store.head(session)
        if head is None or head.deleted:
            raise StreamNotFound(session)
        # Pages of one session ask at the same moment, and one of them folds for all.
        async with self._folding(session):
            return await self._now(session)

    async def _now(self, session: str) -> TimelineState:
        places = [one for one in self._held if one[0] == session]
        found = None
        if places:
            found = await self._frames.continued(session, self._held[max(places)])
        if found is None:
            for place in places:
                self._held.pop(place, None)
            found = await self._frames.at(session)
        key = session, found.position
        self._held[key] = found
        self._held.move_to_end(key)
        while len(self._held) > _HELD:
            self._held.popitem(last=False)
        return found
