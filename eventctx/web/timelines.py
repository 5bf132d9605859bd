"""The timelines of a store's sessions: folded once, extended by what was appended since."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Final

from eventctx.engine import Engine
from eventctx.errors import EventctxError, InvalidSetting, StreamNotFound
from eventctx.projections import audit
from eventctx.projections.timeline import fold
from eventctx.projections.timeline.document import document
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.views import mark_of
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.refs import MessageRef

_KEPT_SESSIONS: Final = 16
_KEPT_STATES: Final = 32
"""States of one session to which a page may ask for what came after. They share nearly all."""


class Timelines:
    """The timelines of one engine's sessions, the least recently used ones let go."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sessions: OrderedDict[str, _Kept] = OrderedDict()

    async def document(self, session: str, after: int = -1) -> dict[str, Any]:
        """The document of a session as it is now, or what continues that of position ``after``.

        Raises StreamNotFound, and InvalidSetting for a position that the session does not have.
        """
        kept = self._kept(session)
        async with kept.lock:
            state = await kept.brought_up(self._engine, session)
            if not -1 <= after <= state.position:
                raise InvalidSetting(
                    f"after: expected a position up to {state.position}, found {after}"
                )
            since = await kept.at(self._engine, session, after) if after >= 0 else None
            return await asyncio.to_thread(document, state, session, since=since)

    async def marks(self, session: str) -> list[bytes]:
        """What the digest of a view covers of each message, whole, by its number."""
        kept = self._kept(session)
        async with kept.lock:
            state = await kept.brought_up(self._engine, session)
        return await asyncio.to_thread(
            lambda: [mark_of(Entry("message", one.ref)) for one in state.changes.origins]
        )

    async def picture(self, session: str) -> tuple[list[int], int]:
        """The size of each request in tokens, and how many words of a person the last one lacks."""
        kept = self._kept(session)
        async with kept.lock:
            state = await kept.brought_up(self._engine, session)
        requests = audit.rows(state.audit).requests
        totals = [row.figures.total for row in requests]
        return totals, _lost_words(state, requests[-1].position) if requests else 0

    def _kept(self, session: str) -> _Kept:
        found = self._sessions.get(session)
        if found is None:
            found = self._sessions[session] = _Kept()
        self._sessions.move_to_end(session)
        while len(self._sessions) > _KEPT_SESSIONS:
            self._sessions.popitem(last=False)
        return found


def _lost_words(state: TimelineState, position: int) -> int:
    """How many messages of a person are not in the last request, which is at ``position``."""
    last = state.views.last
    shown = {
        entry.ref.number
        for entry in (*last.sealed, *last.tail)
        if entry.kind == "message" and isinstance(entry.ref, MessageRef)
    }
    return sum(
        one.ref.facts.kind == "human" and one.ref.number not in shown
        for one in state.changes.origins
        if one.ref.position < position
    )


class _Kept:
    """The states of one session that are kept, by position."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._states: OrderedDict[int, TimelineState] = OrderedDict()

    async def brought_up(self, engine: Engine, session: str) -> TimelineState:
        """The state at the session's head."""
        head = await engine.store.head(session)
        if head is None or head.deleted:
            raise StreamNotFound(session)
        if self._states and not await self._holds(engine, session):
            # The session was deleted and made anew, or its records were replaced.
            self._states.clear()
        return await self.at(engine, session, head.head)

    async def at(self, engine: Engine, session: str, position: int) -> TimelineState:
        """The state at a position, from the nearest one before it that is kept."""
        near = max((one for one in self._states if one <= position), default=None)
        state = fold.initial() if near is None else self._states[near]
        if state.position < position:
            start = state.position + 1
            async for record in engine.records(session, start, position):
                state = fold.evolve(state, record)
        self._states[position] = state
        self._states.move_to_end(position)
        while len(self._states) > _KEPT_STATES:
            self._states.popitem(last=False)
        return state

    async def _holds(self, engine: Engine, session: str) -> bool:
        newest = self._states[max(self._states)]
        try:
            async for record in engine.records(session, newest.position, newest.position):
                return record.digest == newest.digest
        except EventctxError:
            return False
        return False
