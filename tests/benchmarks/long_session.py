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

SESSION: Final = "long"
KEEP: Final = 50
BUDGET: Final = 40_000
"""Tokens of a request: a compaction is due every 70 messages or so."""

ROUNDS: Final = 20
"""Tool rounds of a turn, each with a request."""

MESSAGES_OF_A_TURN: Final = 1 + 2 * ROUNDS

_BATCH: Final = 1_000
_FIELDS: Final = Draft.__struct_fields__


async def make(path: Path, messages: int) -> None:
    """A store with a session of at least so many messages."""
    memory = await _lived(messages)
    async with eventctx.open(path, durability="normal", receipts=False) as file:
        await _copy(memory, file.store)


async def recorded(messages: int) -> list[Record]:
    """The records of a session of at least so many messages, with their bodies."""
    return [record async for record in (await _lived(messages)).read(SESSION)]


async def _lived(messages: int) -> EventStore:
    memory = MemoryStore()
    # The engine is not closed by the block's end alone: its store is read after it.
    engine = Engine(memory)
    await _live(await open_in(engine), messages)
    await engine.close_session(SESSION)
    return memory


async def open_in(engine: Engine) -> eventctx.Context:
    """The session, with the settings that it was made with."""
    return await engine.session(SESSION, policy=Simple(keep_recent=KEEP), max_tokens=BUDGET)


async def _live(ctx: eventctx.Context, messages: int) -> None:
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


async def _copy(source: EventStore, target: EventStore) -> None:
    batch: list[Draft] = []
    async for record in source.read(SESSION):
        if len(batch) == _BATCH:
            await target.append(SESSION, batch, record.position - _BATCH - 1)
            batch = []
        batch.append(Draft(*[getattr(record, name) for name in _FIELDS]))
    await target.append(SESSION, batch, record.position - len(batch))
