"""A session for questions about views, and compactions that another release may have written."""

from __future__ import annotations

from typing import Any

import eventctx
from eventctx.engine import Engine
from eventctx.log.plan import Plan
from eventctx.stores.memory import MemoryStore
from tests.sessions import append_event, body_of, compacted_by_hand, model, user

Row = dict[str, Any]


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


async def session(*rows: Row, **options: Any) -> tuple[Engine, eventctx.Context]:
    """A session with these messages, added one by one."""
    engine = Engine(MemoryStore())
    ctx = await engine.session("s", **options)
    for row in rows:
        await ctx.add_message(row)
    return engine, ctx


async def compacted(engine: Engine, plan: Plan, *texts: str) -> int:
    """Append a compaction with this plan, as another release may have written it."""
    bodies = [body_of(user(text)) for text in texts]
    return await append_event(engine.store, compacted_by_hand(plan), *bodies)
