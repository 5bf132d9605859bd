"""The compactions of a timeline as rows of a document."""

from __future__ import annotations

import msgspec

from eventctx.projections import figures
from eventctx.projections.audit import CompactionRow
from eventctx.projections.explain.changes import Cause
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.units import MILLISECOND, Document


class CompactionColumns:
    """All compactions of a state; ``place`` is a compaction's place among them, from 0."""

    def __init__(self, state: TimelineState) -> None:
        self._rows = list(state.audit.compactions)
        self._figures = figures.read(state.audit.sizes)
        self._places = {one.position: place for place, one in enumerate(self._rows)}
        applied = [one.position for one in self._rows if one.outcome == "applied"]
        self._numbers = {position: number for number, position in enumerate(applied, 1)}
        self._causes = _causes(state)
        self._insertions: dict[int, list[int]] = {}
        for place, extra in enumerate(state.views.extras):
            if extra.kind == "insertion" and extra.position is not None:
                self._insertions.setdefault(extra.position, []).append(-1 - place)

    def place(self, position: int) -> int:
        """The place of the compaction whose record lies at ``position``; -1 for another record."""
        return self._places.get(position, -1)

    def rows(self, first: int) -> list[Document]:
        """The compactions from ``first`` on."""
        return [self._row(one) for one in self._rows[first:]]

    def updated(self, before: CompactionColumns) -> dict[str, Document]:
        """What reads otherwise by now of the compactions that ``before`` knew, by place."""
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
        """What only the records behind a compaction tell."""
        known = self._figures.compactions.get(row.position)
        if known is None:
            known = figures.CompactionFigures(row.tokens_before, True, row.tokens_after, True)
        return {
            "before": known.before,
            "before_estimated": known.before_estimated,
            "after": known.after,
            "after_estimated": known.after_estimated,
            "recorded": known.recorded,
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
