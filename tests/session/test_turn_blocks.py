"""The blocks of ``ctx.turn()``: ids from the engine's random source, and one entry for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import eventctx
from eventctx.errors import InvalidSetting, TurnError
from eventctx.log.codec import decode_event
from eventctx.log.events import ToolError
from eventctx.orchestrators import BasicOrchestrator
from eventctx.session.context import Context
from eventctx.session.scope import current_scope
from eventctx.testing import FixedClock, FixedRandom
from eventctx.testing.providers import ScriptedProvider
from tests.sessions import names

QUESTION = {"role": "user", "content": "a"}


async def by_blocks(ctx: Context) -> None:
    async with ctx.turn() as turn, turn.iteration() as cycle:
        await ctx.add_message(QUESTION)
        async with cycle.provider_call("m"):
            pass


async def by_a_host(ctx: Context) -> None:
    host = ctx.following()
    await host.turn_began()
    await host.turn_ended()


async def by_an_orchestrator(ctx: Context) -> None:
    await BasicOrchestrator().execute("hi", ctx, {"p": ScriptedProvider("hello")})


@pytest.mark.parametrize("write", [by_blocks, by_a_host, by_an_orchestrator])
async def test_a_fixed_clock_and_fixed_random_bytes_give_the_same_digests(
    write: Callable[[Context], Awaitable[None]],
) -> None:
    runs = []
    for _ in range(2):
        async with eventctx.open(clock=FixedClock(), random=FixedRandom()) as engine:
            await write(await engine.session("s"))
            runs.append([(one.turn_id, one.digest) async for one in engine.records("s")])
    assert runs[0] == runs[1]
    assert any(turn_id is not None for turn_id, _ in runs[0])


async def test_what_a_host_reports_wrongly_keeps_neither_tools_nor_turns_from_their_end() -> None:
    async with eventctx.open() as engine:
        host = (await engine.session("s")).following()
        await host.turn_began()
        with pytest.raises(InvalidSetting, match="tool: expected a text"):
            await host.tool_began("odd \ud800", "c1", "first")
        await host.tool_began("read", "c2", "second")
        await host.iteration_began()
        model: Any = 7
        await host.model_known(model=model)
        with pytest.raises(InvalidSetting, match="provider:request"):
            await host.turn_ended()
        assert not host.in_turn
        ended = ["tool:pre", "tool:error", "prompt:complete"]
        assert (await names(engine))[2:] == ended


async def test_a_turn_id_has_the_form_of_a_random_uuid() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        one, other = ctx.turn().turn_id, ctx.turn().turn_id
    assert one != other
    assert len(one) == 32 and one[12] == "4"


async def test_a_turn_that_was_not_entered_has_no_iterations() -> None:
    async with eventctx.open() as engine:
        turn = (await engine.session("s")).turn()
        with pytest.raises(TurnError, match=r"enter it first, `async with ctx.turn\(\) as turn`"):
            turn.iteration()


async def test_an_iteration_that_was_not_entered_has_no_calls() -> None:
    async with eventctx.open() as engine, (await engine.session("s")).turn() as turn:
        cycle = turn.iteration()
        for make in (cycle.provider_call, cycle.plan, lambda: cycle.tool_call("t")):
            with pytest.raises(TurnError, match=r"async with turn.iteration\(\) as cycle"):
                make()


async def test_a_block_is_entered_once_and_says_how_to_go_on() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        turn = ctx.turn()
        async with turn:
            cycle = turn.iteration()
            async with cycle:
                await entered_twice(cycle.plan(), "make a new planning phase")
                await entered_twice(cycle.provider_call(), "make a new model call")
                await entered_twice(cycle.tool_call("t"), "make a new tool call")
            await entered_twice(cycle, r"make a new one, `turn.iteration\(\)`", entered=True)
        await entered_twice(turn, "make a new turn", entered=True)
        spans = [one.span_id async for one in engine.records("s") if one.type in STARTS]
    assert len(spans) == len(set(spans)) == 4
    assert current_scope() is None


STARTS = ("prompt:submit", "plan:start", "provider:request", "tool:pre")


async def entered_twice(block: Any, advice: str, *, entered: bool = False) -> None:
    """Enter a block until it refuses; the scope outside stays as it was."""
    if not entered:
        async with block:
            pass
    outside = current_scope()
    with pytest.raises(TurnError, match=advice):
        async with block:
            raise AssertionError
    assert current_scope() is outside


async def test_a_tool_that_returned_its_failure_ends_as_an_error_whatever_comes_after() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        async with ctx.turn() as turn, turn.iteration() as cycle:
            async with cycle.tool_call("read", "c1") as call:
                call.failed("OSError", "no such file")
            with pytest.raises(KeyError):
                async with cycle.tool_call("read", "c2") as call:
                    call.failed("OSError")
                    raise KeyError("later")
        ends = [decode_event(one) async for one in engine.records("s") if one.type == "tool:error"]
    assert ends == [
        ToolError("read", "OSError", "c1", "no such file"),
        ToolError("read", "OSError", "c2", ""),
    ]


async def test_a_failure_is_named_by_texts() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        async with (
            ctx.turn() as turn,
            turn.iteration() as cycle,
            cycle.tool_call("read", "c1") as call,
        ):
            wrong: Any = None
            with pytest.raises(InvalidSetting, match="kind: expected a text"):
                call.failed(wrong)
            with pytest.raises(InvalidSetting, match="message: expected a text"):
                call.failed("OSError", wrong)
        assert "tool:post" in await names(engine)
