"""The timelines of a store's sessions, extended by what was appended since they were asked for.

Key frames answer for any position; on top of them the newest state of each session is held, so that
an event of a session that grows folds its new records and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Final

from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, StreamNotFound
from eventctx.log.store import EventStore
from eventctx.projections.timeline import fold
from eventctx.projections.timeline.document import document
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.views import mark_of
from eventctx.projections.view.entries import Entry
from eventctx.queries.timelines.key_frames import timeline_at
from eventctx.web.pictures import SessionPicture, picture_of

_HELD: Final = 64
"""States that pages were sent last, of all sessions; each shares nearly all with the next."""


class Timelines:
    """The timelines of one store's sessions."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._held: OrderedDict[tuple[str, int], TimelineState] = OrderedDict()
        self._newest: dict[str, int] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def document(self, session: str, after: int = -1) -> dict[str, Any]:
        """The document of a session as it is now, or what continues that of position ``after``.

        Raises StreamNotFound, and InvalidSetting for a position that the session does not have.
        """
        state = await self._now(session)
        if not -1 <= after <= state.position:
            raise InvalidSetting(
                f"after: expected a position up to {state.position}, found {after}"
            )
        since = await self._at(session, after) if after >= 0 else None
        return await asyncio.to_thread(document, state, session, since=since)

    async def marks(self, session: str) -> list[bytes]:
        """What the digest of a view covers of each message, whole, by its number."""
        state = await self._now(session)
        return await asyncio.to_thread(
            lambda: [mark_of(Entry("message", one.ref)) for one in state.changes.origins]
        )

    async def _now(self, session: str) -> TimelineState:
        head = await self._store.head(session)
        if head is None or head.deleted:
            raise StreamNotFound(session)
        # Pages of one session ask at the same moment, and one of them folds for all.
        async with self._locks.setdefault(session, asyncio.Lock()):
            held = self._held.get((session, self._newest.get(session, -1)))
            found = None if held is None else await self._extended(session, held)
            if found is None:
                self._forget(session)
                found = await timeline_at(self._store, session)
            self._newest[session] = found.position
            self._hold(session, found)
            return found

    async def _extended(self, session: str, state: TimelineState) -> TimelineState | None:
        """The state after all records; None where it is not of this log any more.

        Another session may have its name by now, or an erasure changed what earlier messages are.
        """
        met = False
        async for record in self._store.read(session, start=state.position, bodies=False):
            if not met:
                met = record.digest == state.digest
                if not met:
                    return None
                continue
            if record.type == "context:erased":
                return None
            state = fold.evolve(state, record)
        return state if met else None

    async def _at(self, session: str, position: int) -> TimelineState:
        found = self._held.get((session, position))
        return await timeline_at(self._store, session, position) if found is None else found

    def _hold(self, session: str, state: TimelineState) -> None:
        key = session, state.position
        self._held[key] = state
        self._held.move_to_end(key)
        while len(self._held) > _HELD:
            self._held.popitem(last=False)

    def _forget(self, session: str) -> None:
        for key in [one for one in self._held if one[0] == session]:
            del self._held[key]


async def session_picture(engine: Engine, session: str) -> SessionPicture:
    """What the list of sessions shows of one: its sizes, and a person's words that are lost.

    Raises StreamNotFound.
    """
    return picture_of(await timeline_at(engine.store, session))
