"""Small sessions that several test files begin with."""

from __future__ import annotations

from typing import Any

import eventctx
from eventctx.engine import Engine

USER = {"role": "user", "content": "hello"}


def tool_round(number: int, size: int = 400) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {}}
    done = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "z" * size}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [done]}]


async def filled(engine: Engine, rounds: int = 30, **options: Any) -> eventctx.Context:
    ctx = await engine.session("s", **options)
    await ctx.add_message(USER)
    for number in range(rounds):
        for message in tool_round(number):
            await ctx.add_message(message)
    return ctx


async def names(engine: Engine, session: str = "s") -> list[str]:
    return [record.type async for record in engine.records(session)]
