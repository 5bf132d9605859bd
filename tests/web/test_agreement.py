"""For every request, the browser derives the view that the engine derives: two implementations.

Numbers, places of bodies, tokens, standings with their causes, tokens by group, digests, and a
person's words out of view: of a whole document, and of one in pieces. And the reference of the
inspector has every route and every column of such a document, and no other.

``tests/web/page/agreement.mjs`` reads of each session a file with:

- ``document``: the whole timeline, ``deltas`` the same in pieces, ``marks`` as ``/digests`` has.
- ``requests``: of each its ``position``, ``name`` and figures; ``entries``, each a text of what it
  is, whose, where its body lies and its tokens; ``standings``, a digit for each message added so
  far, and ``causes``, the position of the record that caused it, or -1; ``groups``, tokens by group
  of the log; ``digest``; and ``out``, a person's messages out of view with the first request of
  those without it.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

import eventctx
from eventctx.engine import Engine
from eventctx.hooks.result_redactor import ResultRedactor
from eventctx.log.codec import decode_known
from eventctx.log.record import Record
from eventctx.projections.explain import changes
from eventctx.projections.explain.changes import ChangesState
from eventctx.projections.explain.view_diff import token_groups
from eventctx.projections.explain.why import ViewHistory
from eventctx.projections.presence import Presence
from eventctx.projections.timeline import fold as timeline
from eventctx.projections.timeline.document import document
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.views import mark_of
from eventctx.projections.view import planned, request_view
from eventctx.projections.view.entries import Entry, digest_of
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.stores.memory import MemoryStore
from eventctx.web.answers import PageAnswers
from eventctx.web.app import SCREENS
from eventctx.web.follow import MOST_STREAMS
from eventctx.web.serving import MOST_CONNECTIONS
from tests.children import started
from tests.faults.counts import FULL
from tests.how_much import MOST_MESSAGES, some
from tests.queries.test_explaining_any_session import STEPS, in_short, play
from tests.test_recorded_sessions import SESSIONS as RECORDED
from tests.test_recorded_sessions import imported
from tests.web.made_sessions import SESSIONS as MADE
from tests.web.node import PAGE_TESTS, node

pytestmark = pytest.mark.xdist_group("agreement")

CHECKED = some(5, 20)
"""Requests of a session that the engine is asked for; each answer folds its log again."""

STANDINGS = [one for one in Presence if one not in (Presence.SUMMARY, Presence.GONE)]
PIECES = 7

Agreement = dict[str, Any]


def told(records: Sequence[Record], session: str, pieces: int) -> Agreement:
    """What the page is told of a session: the whole document, the same in pieces, and marks."""
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
    return {"document": document(state, session), "deltas": deltas, "marks": marks}


async def agreement(engine: Engine, session: str, pieces: int = PIECES) -> Agreement:
    """The documents of a session, and what the engine says of each of its requests."""
    records = [one async for one in engine.store.read(session, bodies=False)]
    requests = await _requests(engine, session, records)
    return {**told(records, session, pieces), "requests": requests}


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
    rulings = [one.ruling or one.stripped for one in answers]
    return {
        "standings": "".join([str(STANDINGS.index(one.standing)) for one in answers]),
        "causes": [-1 if one is None else one.cause.position for one in rulings],
    }


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


Agrees = Callable[[Agreement], None]


@pytest.fixture(scope="module")
def browser_agrees() -> Iterator[Agrees]:
    """A process that answers for files, so that each session does not start one."""
    command = [node(), str(PAGE_TESTS / "answer.mjs")]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def agrees(said: Agreement) -> None:
            """Raise where the browser derives something else, with what it is."""
            assert process.stdin is not None and process.stdout is not None
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "said.json").write_bytes(msgspec.json.encode(said))
                process.stdin.write(f"{folder}/said.json\n")
                process.stdin.flush()
                assert process.stdout.readline() == "\n"

        yield agrees


@pytest.mark.parametrize("name", RECORDED)
async def test_the_browser_agrees_on_every_request_of_a_recorded_session(
    name: str, recorded_sessions: Path, browser_agrees: Agrees
) -> None:
    engine, sessions = await imported(recorded_sessions / name)
    assert sessions
    for session in sessions:
        if FULL or len(await engine.transcript(session)) <= MOST_MESSAGES:
            browser_agrees(await agreement(engine, session))


@cache
def made(name: str) -> Agreement:
    async def asked() -> Agreement:
        return await agreement(*await MADE[name]())

    return asyncio.run(asked())


@pytest.mark.parametrize("name", MADE)
def test_the_browser_agrees_on_a_made_session(name: str, browser_agrees: Agrees) -> None:
    browser_agrees(made(name))


def test_the_made_sessions_have_entries_of_every_kind() -> None:
    found = [made(name)["document"] for name in MADE]
    kinds = {extra["kind"] for one in found for extra in one["extras"]}
    assert kinds == {"shortened", "stripped", "partial", "insertion", "synthetic", "opening"}
    whats = {one["legends"]["what"][code] for one in found for code in one["changes"]["what"]}
    assert whats == set(found[0]["legends"]["what"])
    assert sum(len(one["recounts"]) for one in found) > 3
    assert any(one["parent"] is not None for one in found)


async def played(steps: list[tuple[str, Any]]) -> Agreement:
    engine = Engine(MemoryStore())
    options = {"max_tokens": 3_000, "on_overflow": "send_floor", "summarizer": in_short}
    ctx = await engine.session("s", policy="ladder", **options)
    await play(ctx, steps)
    return await agreement(engine, "s", pieces=4)


@settings(max_examples=some(15, 60))
@given(steps=STEPS)
def test_the_browser_agrees_anywhere(browser_agrees: Agrees, steps: list[tuple[str, Any]]) -> None:
    browser_agrees(asyncio.run(played(steps)))


# -- the reference ------------------------------------------------------------------------------


TEXT: Final = (Path(__file__).parents[2] / "docs/reference/inspect.md").read_text(encoding="utf-8")
TABLES: Final = ("messages", "extras", "requests", "compactions", "changes")


async def test_every_route_is_in_the_reference() -> None:
    async with eventctx.open() as engine:
        answers = PageAnswers(engine, "memory://", None, ResultRedactor(reveal=False))
        routes = {route.path.replace("{name}", "NAME") for route in answers.routes()}
        await answers.close()
    listed = set(re.findall(r"^\| `(/api/[^`?]+)", TEXT, flags=re.MULTILINE))
    assert listed == routes
    assert all(f"`/{screen}`" in TEXT or f"/{screen}`" in TEXT for screen in SCREENS)


def test_the_limits_of_the_reference_are_those_of_the_server() -> None:
    assert f"{MOST_STREAMS} streams, {MOST_CONNECTIONS} connections" in TEXT


def test_every_key_of_a_timeline_is_in_the_reference() -> None:
    found: dict[str, set[str]] = {name: set() for name in ("", *TABLES)}
    for known in map(made, MADE):
        for one in (known["document"], *known["deltas"]):
            found[""] |= one.keys() - set(TABLES)
            for name in TABLES:
                found[name] |= _keys(one[name])
    for name in ("messages", "requests"):
        found[name] -= {"first"}  # the number of a document's first row is no column
    assert {name: _listed(name) for name in found} == found


def _keys(part: Any) -> set[str]:
    return set(part) if isinstance(part, dict) else {key for row in part for key in row}


def _listed(name: str) -> set[str]:
    """Keys that the section's table of that name has; without a name its first one."""
    section = TEXT.partition("\n## The timeline document\n")[2]
    if name:
        section = section.partition(f"\n`{name}`, ")[2]
    rows = section.partition("|---|---|\n")[2].partition("\n\n")[0].splitlines()
    return {key for row in rows for key in re.findall(r"`(\w+)`", row.split("|")[1])}
