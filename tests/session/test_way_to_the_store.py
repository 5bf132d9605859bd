"""How far a message, a request and a question go: the modules that each of them enters."""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import eventctx
from tests.session.given import opened
from tests.sessions import USER


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


async def test_a_message_a_request_and_why_enter_few_modules() -> None:
    engine, ctx = await opened()
    for _ in range(3):
        await ctx.add_message(USER)
        await ctx.get_messages_for_request()
    async with eventctx.read(engine.store) as reader:
        await reader.why("s", 0)
        ways: list[tuple[Callable[[], Awaitable[Any]], int, str]] = [
            (lambda: ctx.add_message(USER), 11, "session.context"),
            (ctx.get_messages_for_request, 21, "session.context"),
            (lambda: reader.why("s", 0), 37, "reader"),
        ]
        for call, most, first in ways:
            entered = await modules_entered(call, until_append=first != "reader")
            assert entered[0] == first
            assert len(entered) <= most, entered
