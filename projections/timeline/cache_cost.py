"""The cost of a compaction in its provider's prompt cache: as predicted, and as reported after it.

A provider charges little for the beginning of a prompt that it has seen before. A compaction
changes the prompt near its beginning, so the next request writes again what it keeps; then each
request is smaller by what was taken out. Both follow from the log alone, so nothing is stored, and
imported sessions have it, too.

Invariant: a prediction uses only what was known when the compaction was made (and how many first
entries its next request has in common with the last one before it, which the plan determines). What
was reported later is in ``CacheOutcome`` alone, so the two can be compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from eventctx.log.plan import TAKEN_BACK
from eventctx.projections import figures
from eventctx.projections.audit import AuditRow, CompactionRow
from eventctx.projections.figures import Figures
from eventctx.projections.silent_loss import CHARACTERS_OF_A_TOKEN
from eventctx.projections.timeline import views
from eventctx.projections.timeline.fold import CacheReport, TimelineState

LEAST_MISSED: Final = 2_000
"""Tokens that a cache may serve less than the log allows without being a miss: caches work in
blocks, and a prompt's last part is often outside of them."""


class CacheOutcome(msgspec.Struct, frozen=True):
    """What the ``requests`` since a compaction reported, until the next compaction or until now.

    ``read`` and ``write`` are the first one's cached tokens. ``misses`` counts requests that the
    cache served fewer tokens than it had of their beginning, ``missed`` sums these tokens. ``over``
    is whether another compaction followed.
    """

    requests: int
    over: bool
    read: int
    write: int
    misses: int
    missed: int


class CacheCost(msgspec.Struct, frozen=True):
    """The cost of a compaction, and what it saves, in tokens.

    Of the ``held`` tokens of the prompt before it, which a cache has, the first ``kept`` stay equal
    and ``given_up`` are lost to the next request; ``rewritten`` of these stay in view at another
    place, and are written once more. Each request is smaller by ``saved``. The next compaction is
    expected at request ``expected`` after this one, as each request since the compaction before
    added ``growth`` tokens on average (None: none did). ``thinking`` left the view as its
    signatures hold no longer, by our estimate. ``hour``: what is written lives an hour, as by the
    last report before it. ``reported`` is None where no request after it had its cached tokens
    reported.
    """

    held: int
    kept: int
    given_up: int
    rewritten: int
    saved: int
    growth: int | None
    expected: int | None
    thinking: int = 0
    hour: bool = False
    reported: CacheOutcome | None = None

    @property
    def rewritten_by_report(self) -> int | None:
        """``rewritten``, by what the cache served of the first request after the compaction."""
        if self.reported is None:
            return None
        return min(self.held, max(0, self.rewritten + self.kept - self.reported.read))


def predict(
    *, held: int, kept: int, saved: int, room: int, growth: int, hour: bool = False
) -> CacheCost:
    """The cost of a compaction that leaves ``room`` tokens until the next one.

    ``kept`` of the ``held`` tokens stay equal from the start; ``saved`` leave every request.
    """
    kept = min(held, kept)
    given_up = held - kept
    return CacheCost(
        held=held,
        kept=kept,
        given_up=given_up,
        rewritten=max(0, given_up - saved),
        saved=saved,
        growth=growth or None,
        expected=max(1, -(-room // growth)) if growth else None,
        hour=hour,
    )


def mean_growth(sizes: Sequence[int], since: int) -> int:
    """The tokens that each request from number ``since`` on added to the one before, on average.

    Where that is one request alone, of all requests. On recorded sessions the growth since the last
    compaction foretells the next better than that of the whole session: agents read most at first.
    """
    first = since if len(sizes) - since > 1 else 0
    added = [one - before for before, one in pairwise(sizes[first:]) if one >= before]
    return round(sum(added) / len(added)) if added else 0


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
    found: dict[int, CacheCost] = {}
    for number, (row, place) in enumerate(zip(applied, places, strict=True)):
        if place == 0:
            continue  # the provider has seen no prompt yet
        until = places[number + 1] if number + 1 < len(places) else len(requests)
        growth = mean_growth(sizes[:place], places[number - 1] if number else 0)
        made = _predicted(state, row, requests[place - 1], place, growth)
        over = number + 1 < len(places)
        told = _outcome(requests[place:until], made.kept, over=over) if caches else None
        found[row.position] = msgspec.structs.replace(
            made, thinking=thinking.get(row.position, 0), reported=told
        )
    return found


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
    state: TimelineState, row: CompactionRow, last: _Request, place: int, growth: int
) -> CacheCost:
    """The cost of a compaction after request ``last``, which is number ``place`` from 1."""
    saved = row.tokens_before - row.tokens_after
    # An imported file names no threshold: it compacts again when it is as large as this time.
    line = row.tokens_before if row.threshold is None else row.threshold
    return predict(
        held=last.total,
        kept=last.total - last.messages + round(last.messages * _share_kept(state, place)),
        saved=saved,
        room=line - row.tokens_after,
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


def _share_kept(state: TimelineState, place: int) -> float:
    """The share of request ``place - 1``, by tokens, that the next view begins with."""
    before = views.expand(state.views, place - 1)
    shown = state.views.shown
    keep = shown[place].keep if place < len(shown) else views.kept_now(state.views, state.view)
    sizes = [_tokens(state, one) for one in before]
    return sum(sizes[:keep]) / max(1, sum(sizes))


def _tokens(state: TimelineState, entry: int) -> int:
    if entry < 0:
        return state.views.extras[-1 - entry].tokens
    return state.changes.origins[entry].ref.tokens


# -- what was reported after ---------------------------------------------------------------------


def _outcome(requests: Sequence[_Request], kept: int, *, over: bool) -> CacheOutcome | None:
    first = next(iter(requests), None)
    if first is None or first.cache is None:
        return None
    missed = [one for one in _missed(requests, kept) if one >= LEAST_MISSED]
    cache = first.cache
    return CacheOutcome(len(requests), over, cache.read, cache.write, len(missed), sum(missed))


def _missed(requests: Sequence[_Request], kept: int) -> Iterator[int]:
    """The tokens that the cache had of each request's beginning and did not serve."""
    had = kept
    for one in requests:
        if one.cache is not None and (one is requests[0] or one.continues):
            yield had - one.cache.read
        had = one.total
