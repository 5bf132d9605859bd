"""This library, by the same steps as its neighbours."""

from __future__ import annotations

from pathlib import Path

import eventctx
from tests.benchmarks.neighbours.child import Message, Neighbour
from tests.benchmarks.workload import draft

PACKAGE = "eventctx"
WHAT = {
    "append": "ctx.add_message",
    "load": "session() and get_messages() in a fresh engine",
    "prepare": "get_messages_for_request(), all in view, recorded durably",
}
SESSION = "one"
ROOMY = 10**9
"""Tokens of a budget that holds everything."""


async def opened(folder: Path, messages: list[Message]) -> Neighbour:
    path = folder / "ours.db"
    # It stays open, as a host's does; the process ends without closing it.
    engine = await eventctx.open(path)
    context = await engine.session(SESSION, max_tokens=ROOMY)
    for first in range(0, len(messages), 500):
        batch = [draft(one) for one in messages[first : first + 500]]
        await engine.store.append(SESSION, batch, first)
    await context.get_messages_for_request()

    async def load(fresh: eventctx.Engine) -> None:
        await (await fresh.session(SESSION, max_tokens=ROOMY)).get_messages()

    return Neighbour(
        item=lambda message: message,
        append=context.add_message,
        fresh=lambda: eventctx.open(path),
        load=load,
        prepare=context.get_messages_for_request,
    )
