"""``search`` as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventctx.documents.times import iso_or
from eventctx.log.naming import message_name
from eventctx.projections import figures
from eventctx.search.recall import Recall, Recalled

if TYPE_CHECKING:
    from eventctx.engine import Engine

Found = tuple[list[Recalled], dict[str, int | None]]
"""Messages, and the time in each session of records that the imported file has no time of."""


async def found_by(
    engine: Engine, query: str, session: str | None, limit: int, recall: Recall | None = None
) -> Found:
    """The messages that match best, by ``recall`` or the engine's own search.

    Raises StreamNotFound, InvalidSetting, StoreUnavailable.
    """
    found = await (recall or engine.recaller()).search(query, session, limit)
    sessions = {one.session for one in found}
    return found, {one: await _undated(engine, one) for one in sessions}


async def _undated(engine: Engine, session: str) -> int | None:
    """The time of the records of an imported file that has none: that of its import."""
    state = figures.initial()
    async for record in engine.records(session, 0, 0):
        state = figures.evolve(state, record)
    return figures.read(state).file.undated


def search_document(found: Found) -> list[dict[str, Any]]:
    """The messages with stable keys, the best first."""
    messages, undated = found
    return [_row(one, undated.get(one.session)) for one in messages]


def _row(one: Recalled, undated: int | None) -> dict[str, Any]:
    return {
        "session": one.session,
        "name": message_name(one.number),
        "number": one.number,
        "position": one.position,
        "role": one.role,
        "time": iso_or(one.time, undated),
        "score": one.score,
        "snippet": one.snippet,
        "message": one.message,
    }
