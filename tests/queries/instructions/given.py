"""Sessions in which a person demands something, and compactions made by hand."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

import eventctx
from eventctx.engine import Engine
from eventctx.log.plan import Insertion, Plan, Run, Shortening
from eventctx.queries.instructions import Instruction, Instructions
from eventctx.stores.memory import MemoryStore
from tests.sessions import append_event, body_of, compacted_by_hand, model, user

Row = dict[str, Any]

DROPPED = Run(0, 1, "dropped", "older")
TASK = "Clean up the models. Never touch the migrations. Please keep the old names."
"""Two demands: the first sentence has no cue."""


async def session() -> tuple[Engine, eventctx.Context]:
    """Message 0 is the task, 1 and 2 are talk; one request in turn 1."""
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    async with ctx.turn() as turn:
        for row in (user(TASK), model("On it."), user("go on")):
            await ctx.add_message(row)
        async with turn.iteration():
            await ctx.get_messages_for_request()
    return engine, ctx


async def request(ctx: eventctx.Context, times: int = 1) -> None:
    """A turn with this many requests."""
    async with ctx.turn() as turn:
        for _ in range(times):
            async with turn.iteration():
                await ctx.get_messages_for_request()


async def compact(
    engine: Engine,
    *runs: Run,
    shortened: dict[int, Row] | None = None,
    insertion: Insertion | None = None,
    text: str = "",
    stream: str = "s",
) -> int:
    """Append an applied compaction with these runs, shortened copies, and one insertion.

    A log may hold such a plan: of an importer, or of a release whose policies dropped demands.
    """
    cut = shortened or {}
    bodies = [body_of(row) for row in cut.values()]
    texts = tuple([Shortening(number, body) for body, number in enumerate(cut)])
    insertions = () if insertion is None else (replace(insertion, body=len(bodies)),)
    if insertion is not None:
        bodies.append(body_of(user(text)))
    event = compacted_by_hand(Plan(runs[-1].last, runs, texts, insertions))
    return await append_event(engine.store, event, *bodies, session=stream)


async def demand(engine: Engine, name: str, **request: int) -> Instruction:
    """The demand with this name, such as ``#0.1``."""
    found = await engine.instructions("s", **request)
    return next(one for one in found.instructions if one.name == name)


def rows_of(one: Instruction) -> list[tuple[str, str, str]]:
    """The runs of a demand: how it was held, and in which requests."""
    return [(run.held, run.first, run.last) for run in one.runs]


def counted(found: Instructions) -> dict[str, int]:
    """The states that occur, with their counts."""
    return {held: count for held, count in found.counts.items() if count}
