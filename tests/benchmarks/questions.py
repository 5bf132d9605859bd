"""Questions about a long session: what each takes of an engine that has not seen it, and again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import eventctx
from eventctx.engine import Engine
from eventctx.log.naming import RequestName
from eventctx.queries.explaining import difference, left_out_of
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.stats import stats_of
from tests.benchmarks import long_session
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row
from tests.benchmarks.timing import Samples

FIGURE = "questions"
NAME = "long"

LIMIT_MS: Final = 100.0

Question = Callable[[Engine], Awaitable[Any]]


async def measure(place: Place) -> list[Row]:
    store = place.path("long.db")
    length = place.count(100_000)
    records = await long_session.make(store, NAME, length)
    samples = Samples()
    async with eventctx.open(store, receipts=False) as engine:
        # The very first question folds the log, and leaves key frames next to the store.
        audit = await samples.time(_FOLD, lambda: engine.audit(NAME))
    requests = audit.requests
    asked = _questions(store, length // 2, requests[len(requests) // 2], requests[-1])
    rows = [_row(samples, _FOLD, f"{length:,} messages, {records:,} records", None)]
    for name, question in asked.items():
        await _ask(store, samples, name, question, place.count(3, 1))
        rows += [_row(samples, f"{name}: {time}") for time in ("first", "again")]
    return rows


_FOLD: Final = "the very first question: the fold of the log"


def _questions(store: Path, number: int, past: Any, last: Any) -> dict[str, Question]:
    """Each question by name: about message ``number``, a ``past`` request, and the ``last`` one."""
    turn, iteration, position = past.turn, past.iteration, past.position
    one, other = RequestName(position=position), RequestName(position=last.position)
    return {
        "why, now": lambda engine: engine.why(NAME, number),
        "why, of a past request": lambda engine: engine.why(NAME, number, position=position),
        "request_view, of a past turn": lambda engine: engine.request_view(
            NAME, turn=turn, iteration=iteration
        ),
        "request_view, of the last request": lambda engine: engine.request_view(
            NAME, position=last.position
        ),
        "what a past view left out": lambda engine: left_out_of(engine.store, NAME, one),
        "diff of two requests": lambda engine: difference(engine.store, NAME, one, other),
        "audit": lambda engine: engine.audit(NAME),
        "timeline": lambda engine: engine.timeline(NAME),
        "transcript": lambda engine: engine.transcript(NAME),
        "instructions": lambda engine: engine.instructions(NAME),
        "lost": lambda engine: engine.lost(NAME),
        "stats of the store": lambda engine: stats_of(
            engine.store, "store", store, engine.hook_failures, ReadErrors()
        ),
    }


async def _ask(store: Path, samples: Samples, name: str, question: Question, times: int) -> None:
    """Ask engines that have not seen the session, each twice."""
    for _ in range(times):
        async with eventctx.open(store, receipts=False) as engine:
            for time in ("first", "again"):
                await samples.time(f"{name}: {time}", lambda: question(engine))


def _row(samples: Samples, name: str, note: str = "", limit: float | None = LIMIT_MS) -> Row:
    return Row(
        figure=FIGURE,
        name=name,
        value=samples.milli(name),
        unit="ms",
        limit=limit,
        note=note,
        cpu=samples.cpu(name),
    )
