"""What the compactions of a session cost in the provider's cache, read from its timeline.

All of it follows from the log, so nothing is stored, and imported sessions have it, too. The
part of a prompt that stays equal is the number of first entries that the next request has in common
with the last one before the compaction, which its plan determines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from eventctx.log.codec import encode_event
from eventctx.log.events import PostCompact
from eventctx.log.plan import TAKEN_BACK, Plan, numbers_in
from eventctx.log.record import Record, make_body
from eventctx.messages.encoding import encode_message
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.projections import figures
from eventctx.projections.audit import AuditRow
from eventctx.projections.cache_cost import CacheCost, CacheOutcome, mean_growth, predict
from eventctx.projections.figures import Figures
from eventctx.projections.silent_loss import CHARACTERS_OF_A_TOKEN, LEAST_CACHED
from eventctx.projections.timeline import views
from eventctx.projections.timeline.fold import CacheReport, TimelineState
from eventctx.projections.view import request_view
from eventctx.projections.view.state import ViewState


def cache_costs(state: TimelineState) -> dict[int, CacheCost]:
    """The costs of the applied compactions by position, of those after a first request."""
    applied = [
        row
        for row in state.audit.compactions
        if row.outcome == "applied" and row.strategy != TAKEN_BACK
    ]
    if not applied:
        return {}
    requests = _requests(state)
    sizes = [one.total for one in requests]
    places = [bisect_left(requests, row.position, key=_position) for row in applied]
    thinking = _thinking(state)
    caches = any(one.cache is not None and one.cache.read > 0 for one in requests)
    keeps = {place: _kept_after(state, place) for place in places if place}
    shares = _shares_kept(state, keeps)
    found: dict[int, CacheCost] = {}
    for number, (row, place) in enumerate(zip(applied, places, strict=True)):
        if place == 0:
            continue  # the provider has seen no prompt yet
        until = places[number + 1] if number + 1 < len(places) else len(requests)
        since = places[number - 1] if number else 0
        since = since if place - since > 1 else 0  # as ``mean_growth`` would, without a copy of all
        growth = mean_growth(sizes[since:place], 0)
        made = _predicted(
            before=row.tokens_before,
            after=row.tokens_after,
            line=row.threshold,
            last=requests[place - 1],
            share=shares[place],
            growth=growth,
        )
        over = number + 1 < len(places)
        told = _outcome(requests[place:until], made.kept, over=over) if caches else None
        found[row.position] = msgspec.structs.replace(
            made, thinking=thinking.get(row.position, 0), reported=told
        )
    return found


def predict_plan(
    state: TimelineState, plan: Plan, *, before: int, after: int, threshold: int | None
) -> CacheCost | None:
    """The cost of a plan that is not in force yet; None before the first request.

    It brings the view from ``before`` to ``after`` tokens; the next one is due at ``threshold``.
    """
    requests = _requests(state)
    if not requests:
        return None
    applied = [row.position for row in state.audit.compactions if row.outcome == "applied"]
    since = bisect_left(requests, applied[-1], key=_position) if applied else 0
    keep = views.kept_now(state.views, _under(state.view, plan))
    sizes = [one.total for one in requests]
    made = _predicted(
        before=before,
        after=after,
        line=threshold,
        last=requests[-1],
        share=_share_kept(state, len(requests), keep),
        growth=mean_growth(sizes, since),
    )
    lost = numbers_in(plan.unbound)
    thinking = [ref.facts.thinking for ref in state.view.layout.refs if ref.number in lost]
    tokens = sum([one // CHARACTERS_OF_A_TOKEN for one in thinking])
    return msgspec.structs.replace(made, thinking=tokens)


def _under(view: ViewState, plan: Plan) -> ViewState:
    """The view under a plan whose texts do not count: in their place are empty ones."""
    new = [one.body for one in plan.shortened if one.at is None]
    new += [one.body for one in plan.insertions if one.at is None]
    message = {"role": "user", "content": ""}
    body = make_body(encode_message(message), encode_facts(read_facts(message)), bytes)
    event = PostCompact("applied", "manual", "", 0, 0, 0, 0, 0, "", plan=plan)
    name, version, payload = encode_event(event)
    at, bodies = view.position + 1, (body,) * (1 + max(new, default=-1))
    unknown = (None, None, None, None)
    record = Record("", at, -1, bytes(16), name, version, 0, payload, bodies, *unknown, b"")
    return request_view.evolve(view, record)


# -- what was known before -----------------------------------------------------------------------


class _Request(NamedTuple):
    """A request: its prompt, as reported or estimated, and what was reported of its cache."""

    position: int
    total: int
    messages: int
    continues: bool
    cache: CacheReport | None


def _position(request: _Request) -> int:
    return request.position


def _requests(state: TimelineState) -> list[_Request]:
    known = Figures(state.audit.sizes).requests.all()
    reports = {one.position: one for one in state.extras.cached}
    return [_request(row, known[row.position], reports) for row in state.audit.requests]


def _request(
    row: AuditRow, known: figures.RequestFigures, reports: dict[int, CacheReport]
) -> _Request:
    cache = reports.get(row.position)
    return _Request(row.position, known.total, known.messages, not row.breaks, cache)


def _predicted(
    *, before: int, after: int, line: int | None, last: _Request, share: float, growth: int
) -> CacheCost:
    """The cost of a compaction after request ``last``, of which ``share`` stays equal."""
    # An imported file names no threshold: it compacts again when it is as large as this time.
    line = before if line is None else line
    return predict(
        held=last.total,
        kept=last.total - last.messages + round(last.messages * share),
        saved=before - after,
        room=line - after,
        growth=growth,
        hour=last.cache is not None and last.cache.write_1h > 0,
    )


def _thinking(state: TimelineState) -> dict[int, int]:
    """The tokens of the thinking that each compaction left out of messages that stay."""
    found: Counter[int] = Counter()
    for change in state.changes.changes:
        if change.what == "thinking_left_out":
            facts = state.changes.origins[change.number].ref.facts
            found[change.cause.position] += facts.thinking // CHARACTERS_OF_A_TOKEN
    return found


def _kept_after(state: TimelineState, place: int) -> int:
    """How many first entries of the view before request ``place`` that request keeps."""
    if place == len(state.views.shown):
        return views.kept_now(state.views, state.view)
    return state.views.shown[place].keep


def _shares_kept(state: TimelineState, keeps: Mapping[int, int]) -> dict[int, float]:
    """The shares, by tokens, that ``keeps`` first entries are of the view before each request.

    In one walk over all views: a first message that stays would make each view as long a way back.
    """
    found: dict[int, float] = {}
    sizes: list[int] = []
    for place, (keep, add, _) in enumerate(state.views.shown.first(max(keeps, default=0)), 1):
        del sizes[keep:]
        sizes += [_tokens(state, one) for one in views.ids_of(add)]
        if place in keeps:
            found[place] = sum(sizes[: keeps[place]]) / max(1, sum(sizes))
    return found


def _share_kept(state: TimelineState, count: int, keep: int) -> float:
    """The share, by tokens, of the first ``keep`` entries of the view of request ``count``."""
    return _shares_kept(state, {count: keep})[count]


def _tokens(state: TimelineState, entry: int) -> int:
    if entry < 0:
        return state.views.extras[-1 - entry].tokens
    return state.changes.origins[entry].ref.tokens


# -- what was reported after ---------------------------------------------------------------------


def _outcome(requests: Sequence[_Request], kept: int, *, over: bool) -> CacheOutcome | None:
    first = next(iter(requests), None)
    if first is None or first.cache is None:
        return None
    missed = [one for one in _missed(requests, kept) if one >= LEAST_CACHED]
    cache = first.cache
    return CacheOutcome(len(requests), over, cache.read, cache.write, len(missed), sum(missed))


def _missed(requests: Sequence[_Request], kept: int) -> Iterator[int]:
    """The tokens that the cache had of each request's beginning and did not serve."""
    had = kept
    for one in requests:
        if one.cache is not None and (one is requests[0] or one.continues):
            yield had - one.cache.read
        had = one.total
