"""The token figures of a stored session, for answers that are not about all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eventctx.log.store import EventStore
    from eventctx.projections.figures import Figures


async def figures_of(store: EventStore, stream: str) -> Figures:
    """The figures of every request and compaction of a session. Raises StreamNotFound."""
    # Every command that shows figures imports this; few of its runs fold a timeline.
    from eventctx.projections import figures
    from eventctx.queries.timelines.key_frames import timeline_at

    return figures.read((await timeline_at(store, stream)).audit.sizes)
