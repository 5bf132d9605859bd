"""The token figures of a stored session, for answers that are not about all of it."""

from __future__ import annotations

from eventctx.log.store import EventStore
from eventctx.projections import figures
from eventctx.projections.figures import Figures
from eventctx.queries.timelines.key_frames import timeline_at


async def figures_of(store: EventStore, stream: str) -> Figures:
    """The figures of every request and compaction of a session. Raises StreamNotFound."""
    return figures.read((await timeline_at(store, stream)).audit.sizes)
