"""The audit: a row for every prepared request and compaction, and the errors of estimates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from eventctx.log.codec import decode_known
from eventctx.log.naming import request_name
from eventctx.log.record import Record
from eventctx.projections import figures, numbering
from eventctx.projections.figures import CompactionFigures, Figures, RequestFigures
from eventctx.projections.view import request_view
from eventctx.projections.view.request_view import ViewCounts, tools_of
from eventctx.projections.view.series import Series


class AuditRow(msgspec.Struct, frozen=True):
    """One prepared request.

    ``counts`` are of the transcript's messages, by disposition. ``entries`` is the number of
    messages in the request itself, with insertions and synthetic results. ``figures`` are its
    tokens; ``tokens`` is the estimate that was recorded before it was sent, ``reported`` the prompt
    that the provider counted, if it did. ``digest`` is that of the view, or of the request as it
    was sent where that was recorded. ``breaks`` are the reasons why the request does not merely
    continue the one before. ``additions`` counts the texts that the host sent besides, ``missing``
    the messages that it did not send, both as far as the host reported it. ``untold``: it tells no
    text that it adds; this many messages it added, at least. ``time`` is in UTC nanoseconds.
    ``tools`` names the tool definitions among those of the session.
    """

    position: int
    time: int
    turn: int | None
    turn_id: str | None
    iteration: int | None
    counts: ViewCounts
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
    reported: int | None = None
    additions: int = 0
    missing: int = 0
    tools: str | None = None
    untold: int | None = None

    @property
    def name(self) -> str:
        """``2.3``, or ``@48`` for a request outside a turn or without an iteration."""
        return request_name(self.turn, self.iteration, self.position)


class CompactionRow(msgspec.Struct, frozen=True):
    """One compaction; counts are of the view before and after. Times are nanoseconds.

    ``figures`` are its tokens (None: it was not applied); ``tokens_before`` and ``tokens_after``
    are the estimates in its own record.
    """

    position: int
    time: int
    turn: int | None
    iteration: int | None
    outcome: str
    trigger: str
    strategy: str
    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int
    budget: int | None
    duration: int
    fallback: str | None
    error: str | None
    figures: CompactionFigures | None = None
    threshold: int | None = None


class AuditState(msgspec.Struct, frozen=True, gc=False):
    """Rows so far. Only own records make rows; a fork's inherited records only change the view.

    ``models`` and ``sent`` are by position of the prepared request: model, and numbers of
    additions, missing messages, and untold ones (None: the host tells all). ``own_from`` is the
    position of the first own record (-1: the stream is no fork).
    """

    view: request_view.ViewState
    time: numbering.Numbering
    requests: Series[AuditRow]
    compactions: Series[CompactionRow]
    sizes: figures.FiguresState
    models: Series[tuple[int, str]]
    sent: Series[tuple[int, tuple[int, int, int | None]]]
    own_from: int


def initial() -> AuditState:
    """The audit of an empty stream."""
    return AuditState(
        view=request_view.initial(),
        time=numbering.initial(),
        requests=Series(),
        compactions=Series(),
        sizes=figures.initial(),
        models=Series(),
        sent=Series(),
        own_from=-1,
    )


_ROWS: Final = frozenset(
    (
        *("context:request_prepared", "context:post_compact", "provider:request"),
        *("context:request_sent", "session:fork"),
    )
)
"""Records that make a row, or say more of one."""


def evolve(state: AuditState, record: Record) -> AuditState:
    """The audit after ``record``."""
    view = request_view.evolve(state.view, record)
    return advance(state, record, view, numbering.evolve(state.time, record))


def advance(
    state: AuditState, record: Record, view: request_view.ViewState, time: numbering.Numbering
) -> AuditState:
    """The audit after ``record``, whose view and numbering the caller has folded already."""
    sizes = figures.evolve(state.sizes, record)
    if record.type not in _ROWS:
        return replace(state, view=view, time=time, sizes=sizes)  # most
    requests, compactions = state.requests, state.compactions
    models, own_from = state.models, state.own_from
    differing = state.sent
    match record.type:
        case "context:request_prepared":
            requests = requests.append(_request(state.view, time, record))
        case "context:post_compact":
            compactions = compactions.append(_compaction(time, record))
        case "provider:request":
            called: Any = decode_known(record)
            if called.prepared is not None and called.model is not None:
                models = models.append((called.prepared, called.model))
        case "context:request_sent":
            actual: Any = decode_known(record)
            counts = (len(actual.additions), actual.missing, actual.untold)
            differing = differing.append((actual.prepared, counts))
        case "session:fork":
            requests, compactions, own_from = Series(), Series(), record.position
    return AuditState(view, time, requests, compactions, sizes, models, differing, own_from)


class AuditRows(NamedTuple):
    """The rows of a session, and how far the estimates of its requests were from the reports."""

    requests: tuple[AuditRow, ...]
    compactions: tuple[CompactionRow, ...]
    errors: EstimateErrors


def rows(state: AuditState) -> AuditRows:
    """The rows with their figures, each request with the model that was called."""
    known = figures.read(state.sizes)
    made = known.requests.all()
    complete = row_completer(state)
    requests = [complete(row, made[row.position]) for row in state.requests]
    compactions = [
        msgspec.structs.replace(row, figures=known.compactions.get(row.position))
        for row in state.compactions
    ]
    errors = estimate_errors(known, [row.position for row in requests])
    return AuditRows(tuple(requests), tuple(compactions), errors)


def row_completer(state: AuditState) -> Callable[[AuditRow, RequestFigures], AuditRow]:
    """A function that completes a row of this state by what later records say of its request."""
    models, sent = dict(state.models), dict(state.sent)

    def complete(row: AuditRow, figures: RequestFigures) -> AuditRow:
        additions, missing, untold = sent.get(row.position, (0, 0, None))
        return msgspec.structs.replace(
            row,
            figures=figures,
            reported=figures.reported,
            model=models.get(row.position, row.model),
            additions=additions,
            missing=missing,
            untold=untold,
        )

    return complete


def _request(view: request_view.ViewState, time: numbering.Numbering, record: Record) -> AuditRow:
    event: Any = decode_known(record)
    return AuditRow(
        position=record.position,
        time=record.time,
        turn=numbering.turn_number(time, record.turn_id),
        turn_id=record.turn_id,
        iteration=record.iteration,
        counts=request_view.counts(view),
        entries=event.messages,
        insertions=len(view.layout.insertions) + len(event.insertions),
        tokens=event.tokens,
        budget=event.budget,
        digest=event.digest if event.wire is None else event.wire.digest,
        plan=event.plan,
        breaks=event.breaks,
        model=event.model,
        floor_sent=event.floor_sent,
        reconstructed=event.reconstructed,
        figures=figures.of_request(event, None),
        tools=tools_of(event),
    )


def _compaction(time: numbering.Numbering, record: Record) -> CompactionRow:
    event: Any = decode_known(record)
    return CompactionRow(
        position=record.position,
        time=record.time,
        turn=numbering.turn_number(time, record.turn_id),
        iteration=record.iteration,
        outcome=event.outcome,
        trigger=event.trigger,
        strategy=event.strategy,
        tokens_before=event.tokens_before,
        tokens_after=event.tokens_after,
        messages_before=event.messages_before,
        messages_after=event.messages_after,
        budget=event.budget,
        duration=event.duration,
        fallback=event.fallback,
        error=event.error,
        threshold=event.threshold,
    )


# -- errors of estimates -------------------------------------------------------------------------


class Spread(msgspec.Struct, frozen=True):
    """Relative errors of estimates, 0.05 for 5 % too high: how many, the median, 5 % and 95 %."""

    requests: int
    median: float
    low: float
    high: float


class EstimateErrors(msgspec.Struct, frozen=True):
    """How far estimates were from the counts reported later; None where nothing was reported.

    ``before`` is of requests made before any prompt was reported, ``after`` of later ones, whose
    estimates had learnt from earlier reports. ``without_beside`` is the number of those in
    ``before`` that could not count all that was sent, since the log holds the messages alone.
    """

    before: Spread | None
    after: Spread | None
    without_beside: int


def estimate_errors(figures: Figures, positions: Iterable[int]) -> EstimateErrors:
    """The estimator's errors over the requests at ``positions``, in order."""
    found: tuple[list[float], list[float]] = ([], [])
    without = 0
    wanted = set(positions)
    for made, reported in figures.reported():
        if reported is None or made.position not in wanted:
            continue
        found[made.calibrated].append((made.estimate - reported) / reported)
        without += not made.calibrated and made.beside is None
    return EstimateErrors(spread(found[False]), spread(found[True]), without)


def spread(values: Iterable[float]) -> Spread | None:
    """Median, 5 % and 95 % of ``values`` by linear interpolation; None for none.

    Rounded to four digits: a hundredth of a percent.
    """
    ordered = sorted(values)
    if not ordered:
        return None
    quantiles = [_quantile(ordered, share) for share in (0.5, 0.05, 0.95)]
    return Spread(len(ordered), *quantiles)


def _quantile(ordered: list[float], share: float) -> float:
    """Hyndman and Fan's definition 7, which spreadsheets and numpy use."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return round(ordered[below] + (ordered[above] - ordered[below]) * (place - below), 4)
