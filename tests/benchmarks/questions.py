"""Questions about a session of 100,000 messages: what the first ever takes, and what later ones.

Processor time; each question is asked of an engine that has not seen the session. A copy of a
store's database has no key frames and no search index.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import eventctx
from eventctx.engine import Engine
from tests.benchmarks import workload
from tests.benchmarks.rows import Row, target
from tests.benchmarks.timing import Place, Samples
from tests.benchmarks.workload import SESSION

LENGTH: Final = 100_000
_FOLD, _SEARCH, _VERIFY = "fold", "search", "verify"

Question = Callable[[Engine], Awaitable[Any]]


async def long_store(place: Place) -> Path:
    """A copy of the run's long session, without anything that a question leaves next to it."""

    async def make(path: Path) -> None:
        await workload.make(path, place.count(LENGTH))

    made, path = await place.shared("long.db", make), place.path("long.db")
    shutil.copy(made, path)  # with its rights
    return path


async def measure(place: Place) -> list[Row]:
    store, samples, length = await long_store(place), Samples(), place.count(LENGTH)
    async with eventctx.open(store, receipts=False) as engine:
        head = await engine.store.head(SESSION)
    assert head is not None
    records, past = head.head + 1, length // workload.MESSAGES_OF_A_TURN // 2
    views: dict[str, Question] = {
        "why": lambda engine: engine.why(SESSION, length // 4, turn=past),
        "past view": lambda engine: engine.request_view(SESSION, past, 1),
        "transcript of the second turn": lambda engine: engine.transcript(SESSION, turn=2),
    }
    # The very first question folds the log, and leaves key frames next to the store.
    await _ask(store, samples, _FOLD, views["why"])
    for name, question in views.items():
        for _ in range(3):
            await _ask(store, samples, name, question)
    await _ask(store, samples, _SEARCH, lambda engine: engine.recall("a question", SESSION))
    await _ask(store, samples, _VERIFY, lambda engine: engine.verify(SESSION))
    slowest = max(views, key=samples.seconds)
    note = ", ".join(f"{name} {samples.seconds(name) * 1e3:.0f} ms" for name in views)
    of = f"{length:,} messages, {records:,} records"
    return [
        target("first question", samples.seconds(_FOLD), note=f"why; {of}"),
        target(
            "with frames", samples.seconds("why"), note="why; a question before left the frames"
        ),
        target("first search", samples.seconds(_SEARCH), note=of),
        target("views", samples.seconds(slowest), note=note),
        target("verify", samples.seconds(_VERIFY) * 1e6 / records, note=of),
        await _take_up(place),
    ]


async def _ask(store: Path, samples: Samples, name: str, question: Question) -> Any:
    async with eventctx.open(store, receipts=False) as engine:
        return await samples.time(name, lambda: question(engine))


async def _take_up(place: Place) -> Row:
    """Opening a session in a fresh engine, and its next request."""
    samples, store, length = Samples(), place.path("up.db"), place.count(LENGTH // 10)
    await workload.make(store, length)
    # One engine stays open, as the others of a host would: the last to close tidies the file up.
    async with eventctx.open(store, receipts=False):
        for number in range(place.count(30, 5) + 1):
            async with eventctx.open(store, receipts=False) as engine:
                # The first folds the whole log, and leaves a snapshot.
                with samples.step("both" if number else "first"):
                    context = await workload.open_in(engine)
                    shown = await context.get_messages_for_request()
                # The session goes on, so that the next opening finds another tail to read.
                await context.add_message({"role": "user", "content": f"Go on with {number}."})
    return Row(
        figure="questions",
        name=f"take up a session of {length:,} messages, and its request",
        value=samples.milli("both"),
        unit="ms",
        limit=5.0,
        cpu=samples.cpu("both"),
        note=f"{len(shown)} messages in view; without a snapshot {samples.milli('first'):,.0f} ms",
    )
