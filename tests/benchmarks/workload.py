"""What is measured with: messages of about 1 KB of JSON, in tool rounds of four; a long session.

That has everything in it: turns, requests, usage, tools and compactions. It is made in memory,
where an append does not wait for a thread, and copied into the file record by record: 100,000
messages (400,000 records) take about a minute instead of three.
"""

from __future__ import annotations

import os
import random
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

import eventctx
from eventctx.engine import Engine
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.record import Draft, Record, make_body
from eventctx.log.store import EventStore
from eventctx.messages.encoding import encode_message
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.policies.presets import Simple
from eventctx.stores.memory import MemoryStore

Message = dict[str, Any]

CHARACTERS = 900
"""Of text in a message; with what is around it, about 1 KB of JSON."""


@cache
def _words() -> tuple[str, ...]:
    dice = random.Random(1)  # noqa: S311 - the same words in every run
    letters = "abcdefghijklmnopqrstuvwxyz"
    return tuple("".join(dice.choices(letters, k=dice.randint(2, 11))) for _ in range(5000))


def text(number: int, characters: int = CHARACTERS) -> str:
    """A text of its own for every number, of that length."""
    dice = random.Random(number)  # noqa: S311 - the same text in every run
    made = f"{number}: " + " ".join(dice.choices(_words(), k=characters // 5))
    return made[:characters]


def message(number: int) -> Message:
    """Message ``number``: a question, an answer, a tool call, its result, and again."""
    match number % 4:
        case 0:
            return {"role": "user", "content": text(number)}
        case 1:
            return {"role": "assistant", "content": text(number)}
        case 2:
            call = {"name": "read_file", "arguments": '{"path":"' + text(number, 300) + '"}'}
            return {
                "role": "assistant",
                "content": text(number, 500),
                "tool_calls": [{"id": f"call_{number}", "type": "function", "function": call}],
            }
        case _:
            return {"role": "tool", "tool_call_id": f"call_{number - 1}", "content": text(number)}


def messages(count: int, first: int = 0) -> list[Message]:
    return [message(number) for number in range(first, first + count)]


def draft(message: Message) -> Draft:
    """The draft of an event that ``add_message`` makes of a message."""
    name, version, payload = encode_event(events.MessageAdded())
    body = make_body(encode_message(message), encode_facts(read_facts(message)), os.urandom)
    return Draft(os.urandom(16), name, version, time.time_ns(), payload, (body,))


def as_draft(record: Record) -> Draft:
    fields = [getattr(record, name) for name in Draft.__struct_fields__[1:]]
    return Draft(os.urandom(16), *fields)


# -- a long session --------------------------------------------------------------------------------


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
