"""How far a message, a request and a question go: the modules that each of them enters."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from types import FrameType
from typing import Any

import pytest

import eventctx
from eventctx.stores.memory import MemoryStore


async def modules_entered(call: Callable[[], Awaitable[Any]], *, until_append: bool) -> list[str]:
    """Modules of the library in the order in which ``call`` enters them, the store's left out.

    With ``until_append`` only those before the store is handed the records, else until the call
    returns. Only this thread is watched: what the store's own thread does is not on the way.
    """
    found: list[str] = []

    def enter(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith("eventctx."):
            return
        if name.startswith("eventctx.stores."):
            if until_append and frame.f_code.co_name == "append":
                sys.setprofile(None)
        elif name not in found:
            found.append(name)

    before = sys.getprofile()
    gc.disable()  # what an earlier test left behind ends in modules of its own
    sys.setprofile(enter)
    try:
        await call()
    finally:
        sys.setprofile(before)
        gc.enable()
    return [name.removeprefix("eventctx.") for name in found]


@pytest.fixture
async def ctx() -> AsyncIterator[eventctx.Context]:
    engine = eventctx.Engine(MemoryStore())
    ctx = await engine.session("s")
    for _ in range(3):
        await ctx.add_message({"role": "user", "content": "hello"})
        await ctx.get_messages_for_request()
    yield ctx
    await engine.close()


async def test_a_message_reaches_the_store_through_at_most_eleven_modules(
    ctx: eventctx.Context,
) -> None:
    message = {"role": "user", "content": "hello"}
    entered = await modules_entered(lambda: ctx.add_message(message), until_append=True)
    assert entered[0] == "session.context"
    assert len(entered) <= 11, entered


async def test_a_request_reaches_the_store_through_at_most_twenty_one_modules(
    ctx: eventctx.Context,
) -> None:
    await ctx.add_message({"role": "user", "content": "hello"})
    entered = await modules_entered(ctx.get_messages_for_request, until_append=True)
    assert entered[0] == "session.context"
    assert len(entered) <= 21, entered


async def test_why_enters_at_most_thirty_seven_modules(ctx: eventctx.Context) -> None:
    async with eventctx.read(ctx._session.store) as reader:
        await reader.why("s", 0)
        entered = await modules_entered(lambda: reader.why("s", 0), until_append=False)
    assert entered[0] == "reader"
    assert len(entered) <= 37, entered
