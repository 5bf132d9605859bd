"""Small sessions that several test files begin with."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import eventctx
from eventctx.engine import Engine
from eventctx.log.codec import encode_event
from eventctx.log.events import Erased, Event, PostCompact
from eventctx.log.plan import Plan
from eventctx.log.record import Body, Draft, make_body
from eventctx.log.store import ANY, EventStore
from eventctx.messages.encoding import encode_message
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.queries import key_frames
from eventctx.queries.key_frames import KeyFrames
from eventctx.queries.transfer import export_lines

Message = dict[str, Any]

USER = {"role": "user", "content": "hello"}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def model(text: str) -> Message:
    return {"role": "assistant", "content": text}


def tool_round(number: int, size: int = 400) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {}}
    done = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "z" * size}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [done]}]


def body_of(message: Message, random: Callable[[int], bytes] = os.urandom) -> Body:
    facts = encode_facts(read_facts(message))
    return make_body(encode_message(message), facts, random)


async def filled(
    engine: Engine, rounds: int = 30, *, session: str = "s", **options: Any
) -> eventctx.Context:
    ctx = await engine.session(session, **options)
    await ctx.add_message(USER)
    for number in range(rounds):
        for message in tool_round(number):
            await ctx.add_message(message)
    return ctx


def with_frames(store: EventStore, every: int = 10) -> KeyFrames:
    """Let even a short session of this store have key frames, and something next to them.

    Without frames each question about a short session folds it from zero, and most fold it twice.
    tests/timelines/test_key_frames.py holds that frames change no answer.
    """
    if store not in key_frames._of_stores:
        key_frames._of_stores[store] = KeyFrames(store, every=every)
    return key_frames._of_stores[store]


def compacted_by_hand(plan: Plan, **more: Any) -> PostCompact:
    """An applied compaction with this plan, as an importer or another release writes it."""
    sizes = {"tokens_before": 9, "tokens_after": 5, "messages_before": 30, "messages_after": 2}
    by_hand = {"strategy": "by hand", "strategy_version": 1, "trigger": "manual", "estimator": ""}
    return PostCompact(**{"outcome": "applied", **by_hand, **sizes, "plan": plan, **more})


async def append_event(
    store: EventStore, event: Event, *bodies: Body, session: str = "s", expected: int = ANY
) -> int:
    """Append an event as another process would; the position of its record."""
    name, version, payload = encode_event(event)
    draft = Draft(os.urandom(16), name, version, 0, payload, bodies)
    return (await store.append(session, [draft], expected)).receipt.position


async def erase(ctx: eventctx.Context, event: Erased) -> None:
    """Append an erasure's record, which destroys the contents that it names."""
    session = ctx._session
    await session.appends.append(session.drafts.make(event))


async def names(engine: Engine, session: str = "s") -> list[str]:
    return [record.type async for record in engine.records(session)]


async def exported(engine: Engine, session: str = "s") -> list[bytes]:
    info = await engine.store.head(session)
    assert info is not None
    return [line async for line in export_lines(engine.store, info)]
