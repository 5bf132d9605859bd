"""How far token counts are from the prompts that providers reported, on recorded sessions.

Most transcripts hold neither the system prompt nor the tool definitions, so an estimator is judged
by growth: what it counts for the messages between two requests of one stretch, against how much
the reported prompt grew. The calibration, which learns from reports, is judged by what it says of a
request before its prompt is reported, replayed from the first request on. Of the next request the
last report tells nearly all, whatever is counted; 20,000 tokens later, the rates show.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.engine import Engine
from eventctx.errors import MalformedTranscript, UnknownFormat
from eventctx.importers.load import import_file
from eventctx.messages import calibration
from eventctx.messages.facts import Facts
from eventctx.messages.tokens import BY_KIND, FAMILIES, family_of
from eventctx.projections.view.entries import Entry
from eventctx.stores.memory import MemoryStore
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing

FIGURE = "tokens"

LEAST_GROWTH: Final = 20_000
"""Tokens; over less, what a harness adds unseen is more than an estimator's own error."""

NEAR: Final = 0.06

Count = Callable[[Facts], float]


class Request(NamedTuple):
    """A request whose prompt was reported. ``stretch`` goes up where the view was broken."""

    position: int
    prompt: int
    model: str
    stretch: int
    entries: tuple[Entry, ...]


class Recorded(NamedTuple):
    name: str
    family: str
    requests: list[Request]


class Errors(NamedTuple):
    """Relative errors in rising order."""

    all: list[float]

    def at(self, share: float) -> float:
        """The error that this share of them is not above, in percent."""
        return 100 * self.all[round(share * (len(self.all) - 1))]

    @property
    def median(self) -> float:
        return self.at(0.5)

    def __str__(self) -> str:
        return f"{self.median:+.1f} ({self.at(0.05):+.1f}, {self.at(0.95):+.1f})"


async def measure(place: Place) -> list[Row]:
    folder = sessions_folder()
    if folder is None:
        return [missing(FIGURE, "recorded sessions", "none here; EVENTCTX_SESSIONS names them")]
    sessions = [session async for session in recorded(folder)]
    sessions.sort(key=lambda session: session.family)
    rows: list[Row] = []
    for family, group in groupby(sessions, key=lambda session: session.family):
        members = list(group)
        rows += family_rows(family, members)
        if len(members) > 1:
            rows += [row for member in members for row in session_rows(member)]
    return rows


# -- the recorded sessions -------------------------------------------------------------------------


def sessions_folder() -> Path | None:
    """Where the recorded sessions lie; they are no part of the project."""
    root = Path(__file__).resolve().parents[2]
    place = Path(os.environ.get("EVENTCTX_SESSIONS", root.parent / "shared" / "sessions"))
    return place if (place / "MANIFEST.json").is_file() else None


async def recorded(folder: Path) -> AsyncIterator[Recorded]:
    """Every session in ``folder`` of which two prompts or more were reported."""
    manifest: Any = msgspec.json.decode((folder / "MANIFEST.json").read_bytes())
    for entry in manifest["files"]:
        # Subagents come with the session that they belong to.
        if not entry.get("has_usage") or "/subagents/" in entry["file"]:
            continue
        engine = Engine(MemoryStore())
        try:
            summaries = await import_file(engine.store, folder / entry["file"], complete=True)
        except (UnknownFormat, MalformedTranscript):
            continue
        for summary in summaries:
            requests = await _requests(engine, summary.session) if summary.session else []
            if len(requests) > 1:
                name = _name(entry["file"], summary.session or "")
                yield Recorded(name, family_of(requests[0].model), requests)


def _name(file: str, session: str) -> str:
    """A short name: the file's beginning, and the agent's where it is a subagent's session."""
    _, agent, number = session.partition(".agent-")
    name = Path(file).parts[-2] if file.endswith("/events.jsonl") else Path(file).stem
    return f"{file.partition('/')[0]} {name[:16]}{agent and ' agent ' + number[:8]}"


async def _requests(engine: Engine, session: str) -> list[Request]:
    found: list[Request] = []
    stretch, model = 0, ""
    for row in (await engine.audit(session)).requests:
        stretch += bool(row.breaks)
        # Zeros are what hosts write for requests that were aborted.
        if not row.reported:
            continue
        stretch += bool(model) and family_of(row.model) != family_of(model)
        model = row.model or ""
        view = await engine.request_view(session, position=row.position)
        found.append(Request(row.position, row.reported, model, stretch, view.entries))
    return found


# -- counting --------------------------------------------------------------------------------------


def quarter(facts: Facts) -> float:
    """Characters divided by four."""
    return _characters(facts) / 4 + facts.images + BY_KIND.tokens_of_media(facts)


def third(facts: Facts) -> float:
    """Characters divided by three, and 95 for each call."""
    characters = _characters(facts) / 3 + 95 * len(facts.calls)
    return characters + facts.images + BY_KIND.tokens_of_media(facts)


def _characters(facts: Facts) -> int:
    return facts.prose + facts.arguments + facts.outcome + facts.thinking


def counted(session: Recorded, count: Count) -> list[float]:
    """The sum of ``count`` over the messages of each request."""
    known: dict[tuple[int, int], float] = {}
    totals: list[float] = []
    for request in session.requests:
        total = 0.0
        for entry in request.entries:
            if entry.kind not in ("message", "insertion") or entry.ref is None:
                total += entry.tokens
                continue
            place = (entry.ref.position, entry.ref.index)
            if place not in known:
                known[place] = count(entry.ref.facts)
            total += known[place]
        totals.append(total)
    return totals


# -- errors ----------------------------------------------------------------------------------------


def growth(session: Recorded, count: Count) -> Iterator[float]:
    """The error of what was counted between two requests, for every pair far enough apart."""
    counts = counted(session, count)
    for i, j in _apart(session.requests):
        grown = session.requests[j].prompt - session.requests[i].prompt
        yield (counts[j] - counts[i]) / grown - 1


def _apart(requests: list[Request]) -> Iterator[tuple[int, int]]:
    """Pairs of requests of one stretch between which the prompt grew by ``LEAST_GROWTH``."""
    for i, first in enumerate(requests):
        for j in range(i + 1, len(requests)):
            if requests[j].stretch != first.stretch:
                break
            if requests[j].prompt - first.prompt >= LEAST_GROWTH:
                yield i, j


class Replayed(NamedTuple):
    """The calibration's errors: of each request but the first, and of one far behind a report."""

    next: list[float]
    ahead: list[float]


def replayed(session: Recorded, count: Count) -> Replayed:
    state = calibration.UNCALIBRATED
    # Whole tokens, as an estimator counts them.
    counts = [round(value) for value in counted(session, count)]
    requests = session.requests
    scales: list[calibration.Scale] = []
    for request, value in zip(requests, counts, strict=True):
        before = requests[len(scales) - 1] if scales else None
        continued = before is not None and before.stretch == request.stretch
        state = calibration.prepared(
            state, calibration.RequestSize(request.position, value, continued, None)
        )
        state = calibration.reported(state, request.position, request.prompt, request.model)
        scales.append(calibration.scale(state))

    def error(i: int, j: int) -> float:
        return scales[i].tokens(counts[j]) / requests[j].prompt - 1

    return Replayed(
        [error(i, i + 1) for i in range(len(requests) - 1)],
        [error(i, j) for i, j in _apart(requests)],
    )


def _gathered(errors: Iterable[float]) -> Errors | None:
    found = sorted(errors)
    return Errors(found) if found else None


# -- rows ------------------------------------------------------------------------------------------


def family_rows(family: str, members: list[Recorded]) -> list[Row]:
    """The figures that have a target, over all sessions of a family."""
    estimator = FAMILIES[family].tokens
    ours = [replayed(member, estimator) for member in members]
    # What the crudest count does with the same calibration: learning alone makes up for much.
    crude = [replayed(member, quarter) for member in members]
    return [
        *_growth_rows(family, members, 8.0),
        *_learnt_rows(
            f"{family}: next request",
            _gathered(error for one in ours for error in one.next),
            _gathered(error for one in crude for error in one.next),
            2.0,
            90.0,
        ),
        *_learnt_rows(
            f"{family}: {LEAST_GROWTH:,} tokens after the last report",
            _gathered(error for one in ours for error in one.ahead),
            _gathered(error for one in crude for error in one.ahead),
            None,
            None,
        ),
    ]


def session_rows(member: Recorded) -> list[Row]:
    """The growth of one session of several, to see where a family's figure comes from."""
    return _growth_rows(f"  {member.name}", [member], None)


def _growth_rows(name: str, members: list[Recorded], limit: float | None) -> list[Row]:
    ours = _gathered(error for one in members for error in growth(one, FAMILIES[one.family].tokens))
    if ours is None:
        return []
    others = {"chars/4": quarter, "chars/3 + 95": third, BY_KIND.name: BY_KIND.tokens}
    beside = [
        f"{label} {_gathered(error for one in members for error in growth(one, count))}"
        for label, count in others.items()
    ]
    return [
        Row(
            figure=FIGURE,
            name=f"{name}: growth, nothing reported",
            value=abs(ours.median),
            unit="%",
            limit=limit,
            note="; ".join((f"{ours} in {len(ours.all)} pairs", *beside)),
        )
    ]


def _learnt_rows(
    name: str, ours: Errors | None, crude: Errors | None, limit: float | None, share: float | None
) -> list[Row]:
    """``limit`` bounds the median error, ``share`` how many are near; both in percent."""
    if ours is None or crude is None:
        return []
    return [
        Row(
            figure=FIGURE,
            name=f"{name}, as learnt",
            value=abs(ours.median),
            unit="%",
            limit=limit,
            note=f"{ours} in {len(ours.all)}; chars/4 with the same calibration {crude}",
        ),
        Row(
            figure=FIGURE,
            name=f"{name}, as learnt: within {NEAR:.0%}",
            value=_share_near(ours),
            unit="%",
            limit=share,
            better="more",
            note=f"chars/4 with the same calibration {_share_near(crude):.1f} %",
        ),
    ]


def _share_near(errors: Errors) -> float:
    return 100 * sum(abs(error) <= NEAR for error in errors.all) / len(errors.all)
