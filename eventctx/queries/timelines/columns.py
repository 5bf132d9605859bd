"""The document of a session's timeline: a whole one, or what continues an earlier one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from eventctx.errors import InvalidSetting
from eventctx.projections.timeline.columns import Document
from eventctx.projections.timeline.document import document
from eventctx.projections.timeline.fold import TimelineState

StateAt = Callable[[str, int | None], Awaitable[TimelineState]]
"""The timeline of a session after the record at a position, or after the last one (None)."""


async def timeline_document(state_at: StateAt, session: str, after: int | None = None) -> Document:
    """The document of a session as it is now, or what continues that of position ``after``.

    Raises what ``state_at`` raises, and InvalidSetting for a position that no document ends at.
    """
    state = await state_at(session, None)
    if after is None:
        return await asyncio.to_thread(document, state, session)
    parent = state.extras.provenance.parent
    # The records up to there are the parent's: a document of the fork has its own first one.
    first = 0 if parent is None else parent[1] + 1
    if not first <= after <= state.position:
        raise InvalidSetting(
            f"after: expected a position from {first} to {state.position}, found {after}"
        )
    since = await state_at(session, after)
    return await asyncio.to_thread(document, state, session, since=since)
