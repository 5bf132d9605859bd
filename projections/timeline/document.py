"""The timeline as a document of columns, for a page that derives every view itself.

A document is numbers, ids and codes, and holds no text of a message. It may continue another one:
columns only grow, and what reads otherwise by now (a request whose tokens were reported since) is
in ``updated``. ``docs/reference/inspect.md`` lists the columns; the page reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, get_args

import msgspec

from eventctx.messages.facts import Facts, Kind
from eventctx.projections import audit, figures, numbering
from eventctx.projections.audit import AuditRow, AuditRows, CompactionRow
from eventctx.projections.explain.changes import Change, Origin, What
from eventctx.projections.explain.view_diff import GROUPS
from eventctx.projections.explain.wording import worded
from eventctx.projections.timeline.callers import callers
from eventctx.projections.timeline.fold import TimelineState, initial
from eventctx.projections.timeline.views import OtherEntry

FORMAT: Final = 1
KINDS: Final[tuple[str, ...]] = get_args(Kind)
KNOWN: Final = ("observed", "prepared", "reconstructed")
WHAT: Final[tuple[str, ...]] = get_args(What)
MILLISECOND: Final = 1_000_000

Document = dict[str, Any]


def document(
    state: TimelineState,
    session: str,
    *,
    rows: AuditRows | None = None,
    since: TimelineState | None = None,
    rows_since: AuditRows | None = None,
) -> Document:
    """The columns of a session; with ``since``, an earlier state, only what came after it.

    ``rows`` are ``audit.rows(state.audit)``, for a caller who has them already.
    """
    rows = audit.rows(state.audit) if rows is None else rows
    before = initial() if since is None else since
    if since is not None and rows_since is None:
        rows_since = audit.rows(since.audit)
    known = _Known(before, rows_since)
    made = _Known(state, rows)
    found: Document = {
        "format": FORMAT,
        "session": session,
        "head": state.position,
        "digest": state.digest.hex(),
        "after": -1 if since is None else since.position,
        "records": state.position + 1,
        "mirror": state.about.source,
        "source_format": state.about.format,
        "parent": None
        if state.about.parent is None
        else {"session": state.about.parent[0], "at": state.about.parent[1]},
    }
    if since is None:
        found["legends"] = {"kinds": KINDS, "known": KNOWN, "groups": GROUPS, "what": WHAT}
    found["messages"] = _messages(state, len(before.changes.origins))
    found["extras"] = [_extra(one) for one in state.views.extras[len(before.views.extras) :]]
    found["requests"] = _requests(state, made, len(known.requests))
    found["models"] = made.models[len(known.models) :]
    found["compactions"] = [
        _compaction(one, made, state) for one in made.compactions[len(known.compactions) :]
    ]
    found["changes"] = _changes(made, before)
    found["reasons"] = made.reasons[len(known.reasons) :]
    found["turns"] = _turns(state, before if since is not None else None)
    found["links"] = [
        one._asdict() for one in state.links[len(before.links) if since is not None else 0 :]
    ]
    found["calls"] = _calls(state)
    if since is not None:
        found["updated"] = _updated(made, known, state)
    return found


class _Known:
    """The rows of a state, and the codes that its columns use."""

    def __init__(self, state: TimelineState, rows: AuditRows | None) -> None:
        self.requests: Sequence[AuditRow] = () if rows is None else rows.requests
        self.compactions: Sequence[CompactionRow] = () if rows is None else rows.compactions
        self.cached = dict(state.cached)
        self.models = list(
            dict.fromkeys([row.model for row in self.requests if row.model is not None])
        )
        self.compaction_at = {one.position: place for place, one in enumerate(self.compactions)}
        self.runs = list(_runs(state))
        pairs = dict.fromkeys([(run.reason, run.rule) for run in self.runs if run.reason])
        self.reasons = [{"code": code, "rule": rule} for code, rule in pairs]
        self.reason_at = {pair: place for place, pair in enumerate(pairs)}


# -- messages ------------------------------------------------------------------------------------


def _messages(state: TimelineState, first: int) -> Document:
    origins = state.changes.origins[first:]
    turns = _turn_numbers(state, origins)
    return {
        "first": first,
        "position": [one.ref.position for one in origins],
        "index": [one.ref.index for one in origins],
        "kind": [KINDS.index(one.ref.facts.kind) for one in origins],
        "tokens": [one.ref.tokens for one in origins],
        "characters": [_characters(one.ref.facts) for one in origins],
        "time": [one.time // MILLISECOND for one in origins],
        "turn": turns,
        "caller": callers(state.changes.origins, first),
        "demands": [one.ref.facts.demands for one in origins],
    }


def _characters(facts: Facts) -> int:
    return facts.prose + facts.arguments + facts.outcome + facts.thinking


def _turn_numbers(state: TimelineState, origins: Iterable[Origin]) -> list[int]:
    known: dict[str | None, int] = {}
    for one in origins:
        if one.turn_id not in known:
            number = numbering.turn_number(state.changes.time, one.turn_id)
            known[one.turn_id] = -1 if number is None else number
    return [known[one.turn_id] for one in origins]


def _extra(extra: OtherEntry) -> Document:
    found: Document = msgspec.to_builtins(extra, builtin_types=(bytes,))
    found["group"] = GROUPS.index(extra.group)
    found["mark"] = extra.mark.hex()
    return found


def _calls(state: TimelineState) -> dict[str, int]:
    """The messages with the calls that links and extras name."""
    wanted = {one.call_id for one in state.links if one.call_id is not None}
    for extra in state.views.extras:
        wanted.update(extra.omit, [extra.call] if extra.call else ())
    if not wanted:
        return {}
    return {
        call: number
        for number, one in enumerate(state.changes.origins)
        for call in one.ref.facts.calls
        if call in wanted
    }


# -- requests ------------------------------------------------------------------------------------


def _requests(state: TimelineState, made: _Known, first: int) -> Document:
    rows = made.requests[first:]
    shown = state.views.shown[first:]
    models = {name: place for place, name in enumerate(made.models)}
    figured = [_figures(row, made) for row in rows]
    found: Document = {
        "first": first,
        "position": [row.position for row in rows],
        "time": [row.time // MILLISECOND for row in rows],
        "turn": [_or_less(row.turn) for row in rows],
        "iteration": [_or_less(row.iteration) for row in rows],
        "known": [KNOWN.index(row.figures.known) for row in rows],
        "budget": [_or_less(row.budget) for row in rows],
        "entries": [row.entries for row in rows],
        "keep": [one.keep for one in shown],
        "add": [one.add for one in shown],
        "last": _last_messages(state, rows),
        "plan": [-1 if row.plan is None else made.compaction_at.get(row.plan, -1) for row in rows],
        "breaks": [",".join(row.breaks) for row in rows],
        "model": [-1 if row.model is None else models[row.model] for row in rows],
        "digest": [one.digest for one in shown],
        "floor": [int(row.floor_sent) for row in rows],
    }
    for name in _FIGURES:
        found[name] = [one[name] for one in figured]
    return found


_FIGURES: Final = (
    *("total", "estimated", "messages", "beside", "system", "tools", "cached"),
    *("additions", "missing"),
)
"""Columns of a request that later records may change."""


def _figures(row: AuditRow, made: _Known) -> dict[str, int]:
    known = row.figures
    return {
        "total": known.total,
        "estimated": int(known.estimated),
        "messages": known.messages,
        "beside": _or_less(known.beside),
        "system": _or_less(known.system),
        "tools": _or_less(known.tools),
        "cached": made.cached.get(row.position, -1),
        "additions": row.additions,
        "missing": row.missing,
    }


def _last_messages(state: TimelineState, rows: Sequence[AuditRow]) -> list[int]:
    """The last message before each request; origins stand in the order of their positions."""
    found: list[int] = []
    origins = state.changes.origins
    low = 0
    for row in rows:
        low = _before(origins, row.position, low)
        found.append(low - 1)
    return found


def _before(origins: Sequence[Origin] | Any, position: int, low: int) -> int:
    """How many messages were added before ``position``; at least ``low`` were."""
    high = len(origins)
    while low < high:
        middle = (low + high) // 2
        if origins[middle].ref.position < position:
            low = middle + 1
        else:
            high = middle
    return low


def _or_less(value: int | None) -> int:
    return -1 if value is None else value


# -- compactions and changes ---------------------------------------------------------------------


def _compaction(row: CompactionRow, made: _Known, state: TimelineState) -> Document:
    found: Document = msgspec.to_builtins(row)
    applied = [one.position for one in made.compactions if one.outcome == "applied"]
    number = applied.index(row.position) + 1 if row.outcome == "applied" else 0
    del found["figures"]
    found |= {"time": row.time // MILLISECOND, "number": number, **_sizes(row)}
    found["insertions"] = [
        -1 - place
        for place, extra in enumerate(state.views.extras)
        if extra.kind == "insertion" and extra.position == row.position
    ]
    return found


def _sizes(row: CompactionRow) -> Document:
    known = row.figures
    if known is None:
        known = figures.CompactionFigures(row.tokens_before, True, row.tokens_after, True)
    return {
        "before": known.before,
        "before_estimated": known.before_estimated,
        "after": known.after,
        "after_estimated": known.after_estimated,
        "recorded": known.recorded,
    }


class _Run(msgspec.Struct):
    position: int
    first: int
    last: int
    what: str
    reason: str
    rule: str
    into: int


def _runs(state: TimelineState) -> Iterable[_Run]:
    """Changes of neighbouring messages, alike and by one record, as one run each."""
    run: _Run | None = None
    origins = state.changes.origins
    for change in state.changes.changes:
        made = _run(change, origins[change.number].ref.facts)
        if run is not None and _joins(run, made):
            run.last = made.last
            continue
        if run is not None:
            yield run
        run = made
    if run is not None:
        yield run


def _run(change: Change, facts: Facts) -> _Run:
    number, what, cause, reason, into = change
    rule = worded(reason, facts) if reason else ""
    return _Run(cause.position, number, number, what, reason, rule, _or_less(into))


def _joins(run: _Run, one: _Run) -> bool:
    return (
        one.first == run.last + 1
        and one.position == run.position
        and one.what == run.what
        and (one.reason, one.rule) == (run.reason, run.rule)
        and one.into == run.into == -1
    )


def _changes(made: _Known, before: TimelineState) -> Document:
    runs = [run for run in made.runs if run.position > before.position]
    return {
        "position": [run.position for run in runs],
        "first": [run.first for run in runs],
        "last": [run.last for run in runs],
        "what": [WHAT.index(run.what) for run in runs],
        "reason": [made.reason_at.get((run.reason, run.rule), -1) for run in runs],
        "compaction": [made.compaction_at.get(run.position, -1) for run in runs],
        "into": [run.into for run in runs],
    }


def _turns(state: TimelineState, before: TimelineState | None) -> list[Document]:
    own = [one for one in numbering.turns(state.changes.time) if one.first > state.audit.own_from]
    if before is not None:
        known = {(one.number, one.first): one for one in numbering.turns(before.changes.time)}
        own = [one for one in own if known.get((one.number, one.first)) != one]
    return [{**one._asdict(), "time": one.time // MILLISECOND} for one in own]


# -- what reads otherwise by now -----------------------------------------------------------------


def _updated(made: _Known, known: _Known, state: TimelineState) -> Document:
    models = {name: place for place, name in enumerate(made.models)}
    requests: dict[str, Document] = {}
    for place, (old, new) in enumerate(zip(known.requests, made.requests, strict=False)):
        was, now = _figures(old, known), _figures(new, made)
        if was != now or old.model != new.model:
            model = -1 if new.model is None else models[new.model]
            requests[str(place)] = {**now, "model": model}
    compactions = {
        str(place): _sizes(new)
        for place, (old, new) in enumerate(zip(known.compactions, made.compactions, strict=False))
        if _sizes(old) != _sizes(new)
    }
    return {"requests": requests, "compactions": compactions}
