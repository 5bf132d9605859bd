"""The audit of a session: every request to its model, and every compaction; and its JSON."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.log.naming import iso_or
from eventctx.log.plan import TAKEN_BACK
from eventctx.log.store import EventStore
from eventctx.messages import calibration
from eventctx.messages.calibration import Scale
from eventctx.projections import audit, figures, numbering, usage
from eventctx.projections.audit import EstimateErrors
from eventctx.projections.cache_cost import CacheCost
from eventctx.projections.figures import (
    CompactionFigures,
    ImportedFile,
    LittleRoom,
    RequestFigures,
)
from eventctx.projections.silent_loss import SuspectedLoss
from eventctx.projections.timeline.cache_costs import cache_costs
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.losses import suspected_losses
from eventctx.queries.costs import (
    CallCosts,
    CompactionPrices,
    Cost,
    PriceTable,
    SessionCosts,
    prices_of_compaction,
    read_prices,
    session_costs,
)
from eventctx.queries.encoding import fill
from eventctx.queries.key_frames import key_frames, timeline_at
from eventctx.text import counted, html_table, summary_line


class Audit(msgspec.Struct, frozen=True):
    """The audit of a session: a row per request, a row per compaction, the turns, and usage.

    What an imported file takes back is a row among the compactions, with strategy ``taken_back``.
    ``errors`` says how far the estimates were from the counts that the provider reported later.
    ``losses`` are inferred from those counts: what is missing in a request, and no record says why.
    ``costs`` and ``prices`` are there where prices were asked for. ``caches`` are what compactions
    cost in the provider's cache, in tokens, ``prices`` the same in US dollars, both by position.
    ``little_room``: the last request's budget is nearly filled by what is sent each time.
    """

    session: str
    requests: tuple[audit.AuditRow, ...]
    compactions: tuple[audit.CompactionRow, ...]
    turns: tuple[numbering.TimelineTurn, ...]
    usage: dict[str, usage.UsageTotals]
    errors: EstimateErrors
    losses: tuple[SuspectedLoss, ...] = ()
    costs: SessionCosts | None = None
    little_room: LittleRoom | None = None
    caches: dict[int, CacheCost] = {}
    prices: dict[int, CompactionPrices] = {}

    def __repr__(self) -> str:
        return summary_line(
            f"Audit {self.session}:",
            counted(len(self.requests), "request"),
            counted(sum(one.strategy != TAKEN_BACK for one in self.compactions), "compaction"),
            counted(len(self.turns), "turn"),
        )

    def _repr_html_(self) -> str:
        heads = ("request", "entries", "estimated tokens", "reported", "budget", "model")
        rows = [
            (one.name, one.entries, one.tokens, one.reported, one.budget, one.model)
            for one in self.requests
        ]
        return html_table(repr(self)[1:-1], heads, rows)


class _Kept:
    """The last audit of a session, for as long as nothing came to it."""

    def __init__(self) -> None:
        self.digest = b""
        self.audit: Audit | None = None

    def __len__(self) -> int:
        return 0 if self.audit is None else len(self.audit.requests)


async def audit_session(store: EventStore, session: str) -> Audit:
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
        suspected_losses(now),
        little_room=_little_room(now, found.requests[-1]) if found.requests else None,
        caches=cache_costs(now),
    )


def _little_room(now: TimelineState, last: audit.AuditRow) -> LittleRoom | None:
    if last.budget is None:
        return None
    factor = calibration.scale(now.view.calibration).factor
    scale = Scale(factor, max(0, last.figures.beside or 0))
    return figures.little_room(last.budget, now.view.layout, scale)


async def audit_of(
    store: EventStore, session: str, turn: int | None = None, prices: PriceTable | None = None
) -> tuple[Audit, ImportedFile]:
    """The audit, of one turn if it is named, and what is known of the file it was imported from.

    It has costs, by ``prices`` or the bundled table.

    Raises StreamNotFound, InvalidSetting for a turn that there is not.
    """
    found = await audit_session(store, session)
    table = prices or read_prices()
    costs = await session_costs(store, session, table)
    found = msgspec.structs.replace(found, costs=costs, prices=_prices(found, costs, table))
    file = figures.read((await timeline_at(store, session)).audit.sizes).file
    if turn is None:
        return found, file
    known = [one.number for one in found.turns]
    if turn not in known:
        raise InvalidSetting(
            f"session {session!r} has "
            + (f"turns {min(known)} to {max(known)}" if known else "no turns")
            + f", found {turn}"
        )
    of_turn = msgspec.structs.replace(
        found,
        requests=tuple(row for row in found.requests if row.turn == turn),
        compactions=tuple(row for row in found.compactions if row.turn == turn),
    )
    return of_turn, file


def _prices(found: Audit, costs: SessionCosts, table: PriceTable) -> dict[int, CompactionPrices]:
    """The prices of the compactions before a request whose model has a price."""
    prices: dict[int, CompactionPrices] = {}
    for position, cost in found.caches.items():
        after = bisect_left(found.requests, position, key=lambda row: row.position)
        row = found.requests[min(after, len(found.requests) - 1)]
        price, calls = table.of(row.model), costs.compactions.get(position, Cost()).total
        if price is not None:
            prices[position] = prices_of_compaction(price, cost, calls)
    return prices


# -- as JSON -------------------------------------------------------------------------------------


class RequestAnswer(msgspec.Struct, frozen=True):
    """One prepared request. ``tokens`` and ``estimated`` are the one figure of ``figures``.

    ``loss`` is an inference: what is missing in it, and no record says why. ``cost`` is in US
    dollars at list prices, None where its usage or the price of its model is not known. ``output``
    are the tokens of its answer, as the provider counted them.
    """

    request: str
    position: int
    time: str | None
    turn: int | None
    turn_id: str | None
    iteration: int | None
    counts: dict[str, int]
    entries: int
    insertions: int
    tokens: int
    budget: int | None
    digest: str
    plan: int | None
    breaks: tuple[str, ...]
    model: str | None
    floor_sent: bool
    reconstructed: bool
    figures: RequestFigures
    reported: int | None
    additions: int
    missing: int
    untold: int | None
    estimated: bool
    loss: SuspectedLoss | None
    output: int | None
    cost: Cost | None


class CompactionAnswer(msgspec.Struct, frozen=True):
    """One compaction. Both sizes and ``figures`` are None where nothing was applied.

    ``cost`` is that of the calls that it made, such as for a summary. ``cache`` is what it costs in
    the provider's cache and what it saves, in tokens (None: no request before it), ``price`` the
    same in US dollars (None: the model has no price).
    """

    position: int
    time: str | None
    turn: int | None
    iteration: int | None
    outcome: str
    trigger: str
    strategy: str
    tokens_before: int | None
    tokens_after: int | None
    messages_before: int
    messages_after: int
    budget: int | None
    duration: int
    fallback: str | None
    error: str | None
    figures: CompactionFigures | None
    cost: Cost | None
    cache: CacheCost | None
    price: CompactionPrices | None


class TurnAnswer(msgspec.Struct, frozen=True):
    """Turn ``number`` from position ``first`` to ``last``; ``time`` is its start."""

    number: int
    turn_id: str
    first: int
    last: int
    time: str | None
    cost: Cost | None


class AuditAnswer(msgspec.Struct, frozen=True):
    """The audit of a session. ``little_room``: a budget that is nearly filled by what is sent each
    time (system messages, tools, reserves); None where there is room, or no budget is known.
    """

    session: str
    requests: list[RequestAnswer]
    compactions: list[CompactionAnswer]
    turns: list[TurnAnswer]
    usage: dict[str, usage.UsageTotals]
    errors: EstimateErrors
    costs: CallCosts | None
    little_room: LittleRoom | None


def audit_answer(found: Audit, undated: int | None = None) -> AuditAnswer:
    """The audit as JSON; a time is None where an imported file has none."""
    losses = {one.position: one for one in found.losses}
    costs = found.costs or SessionCosts(None, {}, {}, {}, {})
    return fill(
        AuditAnswer,
        found,
        requests=[
            fill(
                RequestAnswer,
                row,
                request=row.name,
                time=iso_or(row.time, undated),
                counts=row.counts._asdict(),
                tokens=row.figures.total,
                estimated=row.figures.estimated,
                loss=losses.get(row.position),
                output=costs.outputs.get(row.position),
                cost=costs.requests.get(row.position),
            )
            for row in found.requests
        ],
        compactions=[
            fill(
                CompactionAnswer,
                row,
                time=iso_or(row.time, undated),
                tokens_before=None if row.figures is None else row.figures.before,
                tokens_after=None if row.figures is None else row.figures.after,
                cost=costs.compactions.get(row.position),
                cache=found.caches.get(row.position),
                price=found.prices.get(row.position),
            )
            for row in found.compactions
        ],
        turns=[
            fill(
                TurnAnswer,
                turn,
                time=iso_or(turn.time, undated),
                cost=costs.turns.get(turn.turn_id),
            )
            for turn in found.turns
        ],
        costs=costs.calls,
    )
