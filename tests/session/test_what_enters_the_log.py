"""What enters the log is checked where drafts are made: by family of event, and by shape."""

from __future__ import annotations

from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.log import events
from eventctx.log.events import CATALOGUE
from eventctx.stores.memory import MemoryStore
from tests.sessions import USER, names


@pytest.mark.parametrize(
    "event",
    [
        events.MessageAdded(),
        events.MessagesSet(order=((0, 3),)),
        events.Cleared(messages=1),
        events.Erased(numbers=(0,), bodies=((1, 0),)),
        events.SessionStart(library="mine"),
        events.PromptSubmit(number=7),
    ],
    ids=lambda event: type(event).__name__,
)
async def test_an_event_with_a_command_of_its_own_has_no_other_way_in(event: Any) -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    await ctx.add_message(USER)
    before = await names(engine)
    with pytest.raises(InvalidSetting, match="is written by the command that it records"):
        await ctx.emit(event)
    assert await names(engine) == before
    assert await ctx.get_messages_for_request() == [USER]


async def test_a_request_that_a_caller_made_up_is_refused_and_the_session_goes_on() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        made_up: Any = events.RequestPrepared(
            renderer=1, last_message=9, messages=10, tokens=1, digest="00", estimator="e"
        )
        with pytest.raises(InvalidSetting, match="context:request_prepared"):
            await ctx.emit(made_up)
        await ctx.add_message(USER)
        assert await ctx.get_messages_for_request() == [USER]


def test_every_event_is_either_emitted_or_carries_contents_or_promises_of_a_command() -> None:
    emitted = {name for name, row in CATALOGUE.items() if row.emitted}
    assert {"provider:request", "tool:pre", "usage:reported", "session:end"} <= emitted
    assert not emitted & {"context:message_added", "context:request_prepared", "prompt:submit"}


async def test_what_a_host_sent_is_checked_before_it_is_stored() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    prepared: Any = "7"
    with pytest.raises(InvalidSetting, match="prepared: expected an int"):
        await ctx.record_sent(prepared, 1, [])
    await ctx.get_messages_for_request()
    assert len((await engine.audit("s")).requests) == 1


@pytest.mark.parametrize("thing", ["tool:pre", None, events.ToolPre], ids=repr)
async def test_only_events_are_emitted(thing: Any) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        with pytest.raises(InvalidSetting, match="emit: expected an event"):
            await ctx.emit(thing)
        assert await names(engine) == ["session:start"]


async def test_a_link_of_a_wrong_type_is_in_neither_session() -> None:
    async with eventctx.open() as engine:
        for session in ("parent", "child"):
            await engine.session(session)
            await engine.close_session(session)  # a link takes up sessions that nobody has open
        kind: Any = 5
        with pytest.raises(InvalidSetting, match="kind: expected a text"):
            await engine.link("parent", "child", kind=kind)
        for session in ("parent", "child"):
            assert await names(engine, session) == ["session:start"]
