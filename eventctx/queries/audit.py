"""The audit of a session: every request to its model, and every compaction."""

from __future__ import annotations

import msgspec

from eventctx.log import notebook
from eventctx.log.plan import TAKEN_BACK
from eventctx.log.store import EventStore
from eventctx.projections import audit, numbering, usage
from eventctx.projections.audit import EstimateErrors
from eventctx.projections.timeline.fold import TimelineState
from eventctx.queries.timelines.key_frames import key_frames, timeline_at


class Audit(msgspec.Struct, frozen=True):
    """The audit of a session: a row per request, a row per compaction, the turns, and usage.

    What an imported file takes back is a row among the compactions, with strategy ``taken_back``.
    ``errors`` says how far the estimates were from the counts that the provider reported later.
    """

    session: str
    requests: tuple[audit.AuditRow, ...]
    compactions: tuple[audit.CompactionRow, ...]
    turns: tuple[numbering.TimelineTurn, ...]
    usage: dict[str, usage.UsageTotals]
    errors: EstimateErrors

    def __repr__(self) -> str:
        return notebook.line(
            f"Audit {self.session}:",
            notebook.counted(len(self.requests), "request"),
            notebook.counted(
                sum(one.strategy != TAKEN_BACK for one in self.compactions), "compaction"
            ),
            notebook.counted(len(self.turns), "turn"),
        )

    def _repr_html_(self) -> str:
        heads = ("request", "entries", "estimated tokens", "reported", "budget", "model")
        rows = [
            (one.name, one.entries, one.tokens, one.reported, one.budget, one.model)
            for one in self.requests
        ]
        return notebook.table(repr(self)[1:-1], heads, rows)


class _Kept:
    """The last audit of a session, for as long as nothing came to it."""

    def __init__(self) -> None:
        self.digest = b""
        self.audit: Audit | None = None

    def __len__(self) -> int:
        return 0 if self.audit is None else len(self.audit.requests)


async def audited(store: EventStore, session: str) -> Audit:
    """Fold a session into its audit. Raises StreamNotFound."""
    now = await timeline_at(store, session)
    kept = key_frames(store).beside(session, now.changes, _Kept)
    if kept.audit is None or kept.digest != now.digest:
        kept.audit, kept.digest = _audit(session, now), now.digest
    # The caller may change the dict, which must not reach the next answer.
    return msgspec.structs.replace(kept.audit, usage=dict(kept.audit.usage))


def _audit(session: str, now: TimelineState) -> Audit:
    state = now.audit
    found = audit.rows(state)
    return Audit(
        session,
        found.requests,
        found.compactions,
        tuple(turn for turn in numbering.turns(state.time) if turn.first > state.own_from),
        dict(now.extras.usage.models),
        found.errors,
    )
