"""Timeline documents of sessions, each with what the engine says of every request in it.

``tests/web/page/agreement.mjs`` reads each from a file. Its members:

- ``document``: the whole timeline, ``deltas`` the same in pieces, ``marks`` as ``/digests`` has.
- ``requests``: of each its ``position``, ``name`` and figures; ``entries``, each a text of what it
  is, whose, where its body lies and its tokens; ``standings``, a digit for each message added so
  far, and ``causes``, the position of the record that caused it, or -1; ``groups``, tokens by group
  of the log; ``digest``; and ``out``, a person's messages out of view with the first request of
  those without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec.structs import replace

from eventctx.engine import Engine
from eventctx.log.codec import decode_known
from eventctx.log.record import Record
from eventctx.projections.explain import changes
from eventctx.projections.explain.changes import ChangesState
from eventctx.projections.explain.view_diff import token_groups
from eventctx.projections.explain.why import ViewHistory, Why
from eventctx.projections.presence import Presence
from eventctx.projections.timeline import fold as timeline
from eventctx.projections.timeline.document import document
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.views import mark_of
from eventctx.projections.view import planned, request_view
from eventctx.projections.view.entries import Entry, digest_of
from eventctx.projections.view.refs import InsertionRef, MessageRef
from tests.how_much import some

CHECKED = some(5, 20)
"""Requests of a session that the engine is asked for; each answer folds its log again."""

STANDINGS = [one for one in Presence if one not in (Presence.SUMMARY, Presence.GONE)]
PIECES = 7

Agreement = dict[str, Any]


class Told(NamedTuple):
    """What the page is told of a session: the whole document, the same in pieces, and marks."""

    document: Agreement
    deltas: list[Agreement]
    marks: list[str]


def told(records: Sequence[Record], session: str, pieces: int = PIECES) -> Told:
    """The documents of a session's records."""
    ends = {len(records) * piece // pieces for piece in range(1, pieces)} - {0}
    states: list[TimelineState] = []
    state = timeline.initial()
    for count, record in enumerate(records, 1):
        state = timeline.evolve(state, record)
        if count in ends or count == len(records):
            states.append(state)
    # A fork's documents begin after its parent's records.
    states = [one for one in states if one.audit.own_from == state.audit.own_from]
    deltas = [document(states[0], session)]
    deltas += [document(now, session, since=before) for before, now in pairwise(states)]
    marks = [mark_of(Entry("message", origin.ref)).hex() for origin in state.changes.origins]
    return Told(document(state, session), deltas, marks)


async def records_of(engine: Engine, session: str) -> list[Record]:
    """A session's records, without their bodies."""
    return [one async for one in engine.store.read(session, bodies=False)]


async def agreement(engine: Engine, session: str, pieces: int = PIECES) -> Agreement:
    """The documents of a session, and what the engine says of each of its requests."""
    records = await records_of(engine, session)
    requests = await _requests(engine, session, records)
    return {**told(records, session, pieces)._asdict(), "requests": requests}


async def _requests(engine: Engine, session: str, records: Iterable[Record]) -> list[Agreement]:
    rows = {row.position: row for row in (await engine.audit(session)).requests}
    found: list[Agreement] = []
    shown: list[tuple[int, set[int]]] = []
    state = changes.initial()
    for record in records:
        if record.position in rows:
            row = rows[record.position]
            history = ViewHistory(_state_of(state, record))
            shown.append((len(state.origins), set(history.shown)))
            found.append(
                {
                    "position": row.position,
                    "name": row.name,
                    "total": row.figures.total,
                    "estimated": row.figures.estimated,
                    "messages": row.figures.messages,
                    "beside": row.figures.beside,
                    "entries": [_entry(one) for one in history.entries],
                    "groups": token_groups(history, row.figures.messages),
                    "digest": digest_of(history.entries),
                    "out": _people_out(history, shown),
                    **_standings(history),
                }
            )
        state = changes.evolve(state, record)
    await _check(engine, session, found)
    return found


async def _check(engine: Engine, session: str, found: Sequence[Agreement]) -> None:
    """One fold gave what is said of all requests; the engine's own answers are the same."""
    for one in found[:: max(1, len(found) // CHECKED)]:
        view = await engine.request_view(session, position=one["position"])
        assert view.consistent
        assert view.digest == one["digest"]
        assert [_entry(entry) for entry in view.entries] == one["entries"]


def _state_of(state: ChangesState, record: Record) -> ChangesState:
    """The state whose view is that of the request in ``record``."""
    event: Any = decode_known(record)
    view = request_view.as_requested(state.view, event)
    return replace(state, view=planned.with_insertions(view, event.insertions, record))


def _entry(entry: Entry) -> str:
    ref = entry.ref
    if ref is None:
        return f"opening ={entry.tokens}"
    if isinstance(ref, InsertionRef):
        return f"insertion {ref.kind} @{ref.position}.{ref.index} ={ref.tokens}"
    if entry.kind == "synthetic":
        kept = entry.end is not None and entry.end.position is not None
        at = f" @{entry.end.position}.0" if kept and entry.end is not None else ""
        return f"synthetic #{ref.number} {entry.call_id}{at} ={entry.tokens}"
    omit = "".join([f" -{one}" for one in entry.omit])
    return f"{_kind(ref, entry)} #{ref.number} @{ref.position}.{ref.index} ={ref.tokens}{omit}"


def _kind(ref: MessageRef, entry: Entry) -> str:
    if ref.shortened:
        return "shortened"
    if ref.stripped:
        return "stripped"
    return "partial" if entry.omit else "message"


def _standings(history: ViewHistory) -> Agreement:
    answers = [history.why(number) for number in range(len(history.state.origins))]
    return {
        "standings": "".join([str(STANDINGS.index(one.standing)) for one in answers]),
        "causes": [_cause(one) for one in answers],
    }


def _cause(why: Why) -> int:
    ruling = why.ruling or why.stripped
    return -1 if ruling is None else ruling.cause.position


def _people_out(history: ViewHistory, shown: Sequence[tuple[int, set[int]]]) -> list[list[int]]:
    """A person's messages that the last of the requests does not show; ``shown`` are all so far."""
    found = []
    for number, origin in enumerate(history.state.origins):
        if origin.ref.facts.kind != "human" or number in history.shown:
            continue
        fell = len(shown) - 1
        while fell > 0 and number < shown[fell - 1][0] and number not in shown[fell - 1][1]:
            fell -= 1
        found.append([number, fell])
    return found
