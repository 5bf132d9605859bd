"""The requests of a timeline as columns, and those that read otherwise since an earlier state."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from eventctx.projections import audit, figures
from eventctx.projections.audit import AuditRow
from eventctx.projections.timeline.compaction_columns import CompactionColumns
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.units import MILLISECOND, Document, or_less

_MANY: Final = 64
"""From this many rows on, the figures of all requests at once are cheaper than one by one."""

KNOWN: Final = ("observed", "prepared", "reconstructed")


def requests(state: TimelineState, compactions: CompactionColumns, first: int) -> Document:
    """The columns of the requests from number ``first`` on, counted from 0."""
    shown = state.views.shown[first:]
    filled = Filling(state)
    rows = filled.behind(first)
    models = {name: place for place, name in enumerate(state.beside.models)}
    figured = [filled.figures(row) for row in rows]
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
    """Requests of ``since`` of which later records say more, by number, with the new values."""
    now, then = state.audit, since.audit
    touched = {
        *[position for position, _ in now.sizes.reports[len(then.sizes.reports) :]],
        *[position for position, _ in now.models[len(then.models) :]],
        *[position for position, _ in now.sent[len(then.sent) :]],
        *[position for position, _ in state.beside.cached[len(since.beside.cached) :]],
    }
    filled = Filling(state)
    models = {name: place for place, name in enumerate(state.beside.models)}
    found: dict[str, Document] = {}
    for position in sorted(touched):
        place = bisect_left(then.requests, position, key=_position)
        if place < len(then.requests) and then.requests[place].position == position:
            row = filled(place)
            model = -1 if row.model is None else models[row.model]
            found[str(place)] = {**filled.figures(row), "model": model}
    return found


class Filling:
    """Gives the rows of a state what later records say of their requests."""

    def __init__(self, state: TimelineState) -> None:
        self._rows = state.audit.requests
        self._figures = figures.read(state.audit.sizes)
        self._filled = audit.filling(state.audit)
        self._cached = dict(state.beside.cached)

    def __call__(self, place: int) -> AuditRow:
        """The row of request ``place``, counted from 0."""
        row = self._rows[place]
        return self._filled(row, self._figures.requests[row.position])

    def behind(self, first: int) -> list[AuditRow]:
        """The rows from request ``first`` on."""
        rows = self._rows[first:]
        if len(rows) < _MANY:
            return [self._filled(row, self._figures.requests[row.position]) for row in rows]
        figures = self._figures.requests.all()
        return [self._filled(row, figures[row.position]) for row in rows]

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
            "additions": row.additions,
            "missing": row.missing,
        }


def _last_messages(state: TimelineState, rows: list[AuditRow]) -> list[int]:
    """The last message before each request. Messages stand in the order of their positions."""
    origins = state.changes.origins
    low, found = 0, []
    for row in rows:
        low = bisect_left(origins, row.position, lo=low, key=lambda one: one.ref.position)
        found.append(low - 1)
    return found


def _position(row: AuditRow) -> int:
    return row.position
