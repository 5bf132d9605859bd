"""The requests and compactions of a timeline, as columns and rows of its document.

Later records may say more of an earlier request, such as the tokens that its provider counted. So
there are two answers: the columns of what is new, and the values that changed since.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final

import msgspec

from eventctx.projections import audit, figures
from eventctx.projections.audit import AuditRow, CompactionRow
from eventctx.projections.cache_cost import CacheCost
from eventctx.projections.explain.changes import Cause
from eventctx.projections.timeline.cache_costs import cache_costs, serves_from_cache
from eventctx.projections.timeline.fold import TimelineState

MILLISECOND: Final = 1_000_000
"""Nanoseconds. A page's clock counts milliseconds."""

Document = dict[str, Any]
"""JSON values by name."""


def or_less(value: int | None) -> int:
    """A number as a column has it: -1 for None."""
    return -1 if value is None else value


_MANY: Final = 64
"""From this many rows on, the figures of all requests at once are cheaper than one by one."""

KNOWN: Final = ("observed", "prepared", "reconstructed")


def requests(state: TimelineState, compactions: CompactionColumns, first: int) -> Document:
    """The columns of the requests from number ``first`` on, counted from 0."""
    shown = state.views.shown[first:]
    all_rows = RequestRows(state)
    rows = all_rows.from_request(first)
    models = {name: place for place, name in enumerate(state.extras.models)}
    figured = [all_rows.figures(row) for row in rows]
    found: Document = {
        "first": first,
        "position": [row.position for row in rows],
        "time": [row.time // MILLISECOND for row in rows],
        "turn": [or_less(row.turn) for row in rows],
        "iteration": [or_less(row.iteration) for row in rows],
        "known": [KNOWN.index(row.figures.known) for row in rows],
        "budget": [or_less(row.budget) for row in rows],
        "entries": [row.entries for row in rows],
        "keep": [one.keep for one in shown],
        "add": [one.add for one in shown],
        "last": _last_messages(state, rows),
        "plan": [-1 if row.plan is None else compactions.place(row.plan) for row in rows],
        "breaks": [",".join(row.breaks) for row in rows],
        "model": [-1 if row.model is None else models[row.model] for row in rows],
        "digest": [one.digest for one in shown],
        "floor": [int(row.floor_sent) for row in rows],
    }
    for name in _CHANGING:
        found[name] = [one[name] for one in figured]
    return found


_CHANGING: Final = (
    *("total", "estimated", "messages", "beside", "system", "tools", "cached"),
    *("additions", "missing"),
)
"""Columns of a request that later records may change."""


def updated_requests(state: TimelineState, since: TimelineState) -> dict[str, Document]:
    """The new values of requests of ``since`` that later records changed, by number."""
    now, then = state.audit, since.audit
    touched = {
        *[position for position, _ in now.sizes.reports[len(then.sizes.reports) :]],
        *[position for position, _ in now.models[len(then.models) :]],
        *[position for position, _ in now.sent[len(then.sent) :]],
        *[one.position for one in state.extras.cached[len(since.extras.cached) :]],
    }
    all_rows = RequestRows(state)
    models = {name: place for place, name in enumerate(state.extras.models)}
    found: dict[str, Document] = {}
    for position in sorted(touched):
        place = bisect_left(then.requests, position, key=_position)
        if place < len(then.requests) and then.requests[place].position == position:
            row = all_rows(place)
            model = -1 if row.model is None else models[row.model]
            found[str(place)] = {**all_rows.figures(row), "model": model}
    return found


class RequestRows:
    """Completes the rows of a state by what later records say of their requests."""

    def __init__(self, state: TimelineState) -> None:
        self._rows = state.audit.requests
        self._figures = figures.read(state.audit.sizes)
        self._complete = audit.row_completer(state.audit)
        self._cached = {one.position: one.read for one in state.extras.cached}

    def __call__(self, place: int) -> AuditRow:
        """The row of request ``place``, counted from 0."""
        row = self._rows[place]
        return self._complete(row, self._figures.requests[row.position])

    def from_request(self, first: int) -> list[AuditRow]:
        """The rows from request ``first`` on."""
        rows = self._rows[first:]
        if len(rows) < _MANY:
            return [self._complete(row, self._figures.requests[row.position]) for row in rows]
        figures = self._figures.requests.all()
        return [self._complete(row, figures[row.position]) for row in rows]

    def figures(self, row: AuditRow) -> dict[str, int]:
        """The values of the columns that later records may change."""
        known = row.figures
        return {
            "total": known.total,
            "estimated": int(known.estimated),
            "messages": known.messages,
            "beside": or_less(known.beside),
            "system": or_less(known.system),
            "tools": or_less(known.tools),
            "cached": self._cached.get(row.position, -1),
            # Below 0: not known, and at least so many less one.
            "additions": row.additions if row.untold is None else -1 - row.untold,
            "missing": row.missing,
        }


def _last_messages(state: TimelineState, rows: list[AuditRow]) -> list[int]:
    """The last message before each request. Messages are in the order of their positions."""
    origins = state.changes.origins
    low, found = 0, []
    for row in rows:
        low = bisect_left(origins, row.position, lo=low, key=lambda one: one.ref.position)
        found.append(low - 1)
    return found


def _position(row: AuditRow) -> int:
    return row.position


class CompactionColumns:
    """All compactions of a state; ``place`` is a compaction's place among them, from 0."""

    def __init__(self, state: TimelineState, *, costs: dict[int, CacheCost] | None = None) -> None:
        self._state = state
        self._rows = list(state.audit.compactions)
        self._figures = figures.read(state.audit.sizes)
        self._places = {one.position: place for place, one in enumerate(self._rows)}
        applied = [one.position for one in self._rows if one.outcome == "applied"]
        self._numbers = {position: number for number, position in enumerate(applied, 1)}
        self._causes = _causes(state)
        self._costs = cache_costs(state) if costs is None else costs
        self._insertions: dict[int, list[int]] = {}
        for place, extra in enumerate(state.views.extras):
            if extra.kind == "insertion" and extra.position is not None:
                self._insertions.setdefault(extra.position, []).append(-1 - place)

    def place(self, position: int) -> int:
        """The place of the compaction whose record is at ``position``; -1 for another record."""
        return self._places.get(position, -1)

    def rows(self, first: int) -> list[Document]:
        """The compactions from ``first`` on."""
        return [self._row(one) for one in self._rows[first:]]

    def updated(self, since: TimelineState) -> dict[str, Document]:
        """The values of the compactions of ``since``, an earlier state, that changed, by place.

        The cost of its last one counts as changed, as later requests may have reported it: to
        compute the earlier costs for a comparison takes longer than all else here.
        """
        cached = serves_from_cache(since) == serves_from_cache(self._state)
        known = [one for one in self._costs if one <= since.position] if cached else []
        before = CompactionColumns(since, costs={one: self._costs[one] for one in known[:-1]})
        found: dict[str, Document] = {}
        for place, row in enumerate(before._rows):
            now = self._later(row)
            if now != before._later(row):
                found[str(place)] = now
        return found

    def _row(self, row: CompactionRow) -> Document:
        found: Document = msgspec.to_builtins(row)
        del found["figures"]
        cause = self._causes.get(row.position)
        facts = None if cause is None else cause.compaction
        found["time"] = row.time // MILLISECOND
        found["number"] = self._numbers.get(row.position, 0)
        for name in ("threshold", "target", "requested_by"):
            found[name] = None if facts is None else getattr(facts, name)
        return {**found, **self._later(row)}

    def _later(self, row: CompactionRow) -> Document:
        """The values that only later records tell."""
        known = self._figures.compactions.get(row.position)
        if known is None:
            known = figures.CompactionFigures(row.tokens_before, True, row.tokens_after, True)
        return {
            "before": known.before,
            "before_estimated": known.before_estimated,
            "after": known.after,
            "after_estimated": known.after_estimated,
            "recorded": known.recorded,
            "cache": msgspec.to_builtins(self._costs.get(row.position)),
            "insertions": self._insertions.get(row.position, []),
        }


def _causes(state: TimelineState) -> dict[int, Cause]:
    """The compactions that changed messages, by position."""
    found: dict[int, Cause] = {}
    last: Cause | None = None
    for change in state.changes.changes:
        if change.cause is not last:
            last = change.cause
            if last.compaction is not None:
                found[last.position] = last
    return found
