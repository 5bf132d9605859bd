"""A long session with everything in it: turns, requests, usage, tools and compactions.

It is made in memory, where an append does not wait for a thread, and copied into the file record
by record: 100,000 messages (400,000 records) take about a minute instead of three.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import eventctx
from eventctx.engine import Engine
from eventctx.log.record import Draft, Record
from eventctx.log.store import EventStore
from eventctx.policies.presets import Simple
from eventctx.stores.memory import MemoryStore
from tests.benchmarks.workload import text

KEEP: Final = 50
BUDGET: Final = 40_000
"""Tokens of a request: a compaction is due every 70 messages or so."""

ROUNDS: Final = 20
"""Tool rounds of a turn, each with a request."""

_BATCH: Final = 1_000
_FIELDS: Final = Draft.__struct_fields__


async def make(path: Path, session: str, messages: int) -> int:
    """A store with a session of at least so many messages; the number of its records."""
    memory = MemoryStore()
    # The engine is not closed by the block's end alone: its store is read after it.
    engine = Engine(memory)
    await _live(engine, session, messages)
    await engine.close_session(session)
    async with eventctx.open(path, durability="normal") as file:
        return await _copy(memory, file.store, session)


async def _live(engine: Engine, session: str, messages: int) -> None:
    ctx = await engine.session(session, policy=Simple(keep_recent=KEEP), max_tokens=BUDGET)
    number = 0
    while number < messages:
        async with ctx.turn() as turn:
            await ctx.add_message({"role": "user", "content": text(number)})
            number += 1
            for _ in range(ROUNDS):
                async with turn.iteration() as iteration:
                    await _round(ctx, iteration, number)
                    number += 2


async def _round(ctx: eventctx.Context, iteration: eventctx.Iteration, number: int) -> None:
    rows = await ctx.get_messages_for_request()
    async with iteration.provider_call("a-model") as call:
        await call.usage(200 * len(rows), 20, cache_read=100 * len(rows))
    use = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": f"{number}"}}
    said = {"type": "text", "text": text(number, 300)}
    await ctx.add_message({"role": "assistant", "content": [said, use]})
    async with iteration.tool_call("read", f"c{number}"):
        pass
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text(number + 1)}
    await ctx.add_message({"role": "user", "content": [result]})


async def _copy(source: EventStore, target: EventStore, session: str) -> int:
    batch: list[Draft] = []
    done = 0
    async for record in source.read(session):
        batch.append(_again(record))
        if len(batch) == _BATCH:
            await target.append(session, batch, done - 1)
            done += len(batch)
            batch = []
    if batch:
        await target.append(session, batch, done - 1)
    return done + len(batch)


def _again(record: Record) -> Draft:
    return Draft(*[getattr(record, name) for name in _FIELDS])
