"""A live agent in small: rounds of four messages and a request, compacted as it goes."""

from __future__ import annotations

from pathlib import Path

import eventctx
from eventctx.policies.presets import Simple
from tests.benchmarks.workload import message

KEEP = 50
"""Messages of the conversation that a compaction keeps."""

WINDOW = 40_000
"""Tokens: about 110 of the messages, so that a compaction is due every 50 or so."""


async def session_of(engine: eventctx.Engine, name: str) -> eventctx.Context:
    """The session, with the settings of this agent."""
    return await engine.session(name, policy=Simple(keep_recent=KEEP), max_tokens=WINDOW)


async def run_rounds(context: eventctx.Context, first: int, last: int) -> None:
    """Messages ``first`` (a multiple of four) up to ``last``, with a request after each round."""
    for number in range(first, last):
        if number % 4 == 0 and number > first:
            await context.get_messages_for_request()
        await context.add_message(message(number))


async def build(path: Path, name: str, length: int) -> None:
    """A store with a session of ``length`` messages, compacted about every 50."""
    # What is measured comes later, so the disk need not be waited for here.
    async with eventctx.open(path, durability="normal") as engine:
        await run_rounds(await session_of(engine, name), 0, length)
