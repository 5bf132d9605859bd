"""A session in the list of sessions: how its sizes went, and whose words are lost at its end."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, TypedDict

from eventctx.engine import Engine
from eventctx.projections import audit
from eventctx.projections.timeline import views
from eventctx.projections.timeline.fold import TimelineState
from eventctx.queries.key_frames import timeline_at

_MOST: Final = 40
"""Most figures in a picture."""


class SessionPicture(TypedDict):
    """``totals`` are requests' tokens; ``lost`` counts a person's messages not in the last one."""

    totals: list[int]
    lost: int


async def session_picture(engine: Engine, session: str) -> SessionPicture:
    """The picture of a session. Raises StreamNotFound."""
    state = await timeline_at(engine.store, session)
    requests = audit.rows(state.audit).requests
    if not requests:
        return {"totals": [], "lost": 0}
    totals = [row.figures.total for row in requests]
    return {"totals": _peaks(totals), "lost": _lost_words(state, requests[-1].position)}


def _peaks(totals: list[int]) -> list[int]:
    """At most ``_MOST`` figures, the largest of each stretch: one looks for peaks."""
    if len(totals) <= _MOST:
        return totals
    edges = [len(totals) * place // _MOST for place in range(_MOST + 1)]
    return [max(totals[start:stop]) for start, stop in pairwise(edges)]


def _lost_words(state: TimelineState, position: int) -> int:
    """How many messages of a person are not in the last request, which is at ``position``."""
    entries = views.expand(state.views, len(state.views.shown) - 1)
    extras = state.views.extras
    shown = {entry if entry >= 0 else extras[-1 - entry].number for entry in entries}
    return sum(
        one.ref.facts.kind == "human" and one.ref.number not in shown
        for one in state.changes.origins
        if one.ref.position < position
    )
