"""The messages that a search of a store found, and their JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from eventctx.log.naming import iso_or, message_name
from eventctx.log.store import EventStore
from eventctx.projections import figures
from eventctx.search.recall import Recall, Recalled

Found = tuple[list[Recalled], dict[str, int | None]]
"""Messages, and the time in each session of records that the imported file has no time of."""


class FoundAnswer(msgspec.Struct, frozen=True):
    """A message that was found; its time is None where an imported file has none."""

    session: str
    name: str
    number: int
    position: int
    role: str
    time: str | None
    score: float
    snippet: str
    message: dict[str, Any]


async def find_messages(
    store: EventStore, recall: Recall, query: str, session: str | None, limit: int
) -> Found:
    """The messages that match best.

    Raises StreamNotFound, InvalidSessionId, InvalidSetting, StoreUnavailable.
    """
    found = await recall.search(query, session, limit)
    sessions = {one.session for one in found}
    return found, {one: await _undated(store, one) for one in sessions}


async def _undated(store: EventStore, session: str) -> int | None:
    """The time of the records of an imported file that has none: that of its import."""
    state = figures.initial()
    async for record in store.read(session, stop=0, bodies=False):
        state = figures.evolve(state, record)
    return figures.read(state).file.undated


def found_answers(found: Found) -> list[FoundAnswer]:
    """The messages as JSON, the best first."""
    messages, undated = found
    return [
        FoundAnswer(
            one.session,
            message_name(one.number),
            one.number,
            one.position,
            one.role,
            iso_or(one.time, undated.get(one.session)),
            one.score,
            one.snippet,
            one.message,
        )
        for one in messages
    ]
