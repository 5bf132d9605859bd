"""A turn that is cancelled while its beginning is written has a beginning and an end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eventctx.log.events import Event
from eventctx.log.ids import new_span_id
from eventctx.session.scope import Scope, current_scope
from eventctx.session.turns import Turn


class Slow:
    """An emitter whose disk is slow."""

    session_id = "s"
    current_span = None

    def __init__(self) -> None:
        self.disk = asyncio.Event()
        self.written: list[Any] = []

    def new_span_id(self) -> str:
        return new_span_id()

    def prepared_in(self, scope: Scope) -> int | None:
        return None

    async def begin_turn(self, scope: Scope, agent: str | None, trace_id: str | None) -> int:
        await self.disk.wait()
        if not self.written:
            self.written.append("begin")
            return 1
        raise OSError("full")

    async def emit(self, event: Event, scope: Scope, answer: str | None = None) -> None:
        self.written.append(event)


async def test_a_turn_that_is_cancelled_while_it_begins_has_begun_and_ended() -> None:
    emitter = Slow()

    async def turn() -> None:
        async with Turn(emitter, "t"):
            emitter.written.append("inside")

    task = asyncio.create_task(turn())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    emitter.disk.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    began, ended = emitter.written
    assert began == "begin"
    assert ended.status == "cancelled"
    assert current_scope() is None


async def test_a_turn_that_could_not_begin_has_no_end() -> None:
    emitter = Slow()
    emitter.written.append("there already")

    async def turn() -> None:
        async with Turn(emitter, "t"):
            raise AssertionError

    task = asyncio.create_task(turn())
    await asyncio.sleep(0)
    task.cancel()
    emitter.disk.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert emitter.written == ["there already"]
