"""This library, by the same steps as its neighbours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import eventctx
from tests.benchmarks.peers.child import Message
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


async def opened(folder: Path, messages: list[Message]) -> Ours:
    path = folder / "ours.db"
    # It stays open, as a host's does; the process ends without closing it.
    engine = await eventctx.open(path)
    context = await engine.session(SESSION, max_tokens=ROOMY)
    for first in range(0, len(messages), 500):
        batch = [draft(one) for one in messages[first : first + 500]]
        await engine.store.append(SESSION, batch, first)
    await context.get_messages_for_request()
    return Ours(path, context)


class Ours:
    def __init__(self, path: Path, context: eventctx.Context) -> None:
        self._path = path
        self._context = context

    @asynccontextmanager
    async def append(self, message: Message) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        yield partial(self._context.add_message, message)

    @asynccontextmanager
    async def load(self) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        async with eventctx.open(self._path) as engine:

            async def work() -> None:
                again = await engine.session(SESSION, max_tokens=ROOMY)
                await again.get_messages()

            yield work

    @asynccontextmanager
    async def prepare(self) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        yield self._context.get_messages_for_request
