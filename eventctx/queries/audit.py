"""The audit of a session: every request to its model, and every compaction."""

from __future__ import annotations

import msgspec

from eventctx.log.store import EventStore
from eventctx.projections import audit, figures, numbering, usage


class Audit(msgspec.Struct, frozen=True):
    """The audit of a session: a row per request, a row per compaction, the turns, and usage.

    ``errors`` says how far the estimates were from the counts that the provider reported later.
    """

    session: str
    requests: tuple[audit.AuditRow, ...]
    compactions: tuple[audit.CompactionRow, ...]
    turns: tuple[numbering.TimelineTurn, ...]
    usage: dict[str, usage.UsageTotals]
    errors: figures.EstimateErrors


async def audited(store: EventStore, session: str) -> Audit:
    """Fold a session into its audit. Raises StreamNotFound."""
    state: audit.AuditState = audit.initial()
    used: usage.UsageState = usage.initial()
    async for record in store.read(session, bodies=False):
        state = audit.evolve(state, record)
        used = usage.evolve(used, record)
    found = audit.rows(state)
    return Audit(
        session,
        found.requests,
        found.compactions,
        tuple(turn for turn in numbering.turns(state.time) if turn.first > state.own_from),
        dict(used.models),
        found.errors,
    )
