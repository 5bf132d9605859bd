"""A session for questions about views, and compactions that another release may have written."""

from __future__ import annotations

import os
from typing import Any

import eventctx
from eventctx.engine import Engine
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.plan import Plan
from eventctx.log.record import Draft
from eventctx.log.store import ANY
from eventctx.stores.memory import MemoryStore
from tests.sessions import body_of

Row = dict[str, Any]


def user(text: str) -> Row:
    return {"role": "user", "content": text}


def model(text: str) -> Row:
    return {"role": "assistant", "content": text}


async def thirty(**options: Any) -> tuple[Engine, eventctx.Context]:
    """A task, 28 messages of a model and a person's last, in a turn that ends in a request."""
    engine = Engine(MemoryStore())
    ctx = await engine.session("s", **{"policy": "simple", **options})
    async with ctx.turn():
        for number in range(30):
            role = user if number in (0, 29) else model
            await ctx.add_message(role(f"message {number}"))
        await ctx.get_messages_for_request()
    return engine, ctx


async def compacted(engine: Engine, plan: Plan, *texts: str) -> int:
    """Append a compaction with this plan, as another release may have written it."""
    event = events.PostCompact(
        outcome="applied",
        trigger="manual",
        strategy="by hand",
        strategy_version=1,
        tokens_before=9,
        tokens_after=5,
        messages_before=30,
        messages_after=2,
        estimator="",
        plan=plan,
    )
    name, version, payload = encode_event(event)
    bodies = tuple([body_of(user(text), os.urandom) for text in texts])
    draft = Draft(os.urandom(16), name, version, 0, payload, bodies)
    return (await engine.store.append("s", [draft], ANY)).receipt.position
