"""Turns: the blocks of `ctx.turn()`, and what the catalogue promises of their activity events."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, TurnError
from eventctx.log import events
from eventctx.log.codec import decode_event
from eventctx.log.events import ToolError
from eventctx.log.record import Record
from eventctx.orchestrators import BasicOrchestrator
from eventctx.session.context import Context
from eventctx.session.scope import current_scope
from eventctx.testing import FixedClock, FixedRandom
from eventctx.testing.providers import ScriptedProvider
from tests.sessions import filled, names

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


USER = {"role": "user", "content": "go"}


async def recorded(engine: Engine, session: str = "s") -> list[Record]:
    return [record async for record in engine.records(session)]


async def ends_of(engine: Engine, span_id: str, *names: str) -> list[tuple[str, str]]:
    """The records of one span that have one of these names, each with its status."""
    return [
        (record.type, getattr(decode_event(record), "status", "ok"))
        for record in await recorded(engine)
        if record.span_id == span_id and record.type in names
    ]


async def fine(_reached: asyncio.Event) -> None:
    """A body that ends by itself."""


async def broken(_reached: asyncio.Event) -> None:
    raise OSError("no such thing")


async def endless(reached: asyncio.Event) -> None:
    reached.set()
    await asyncio.Event().wait()


class Halt(BaseException):
    """What is no Exception and no cancellation, as the end of a program is."""


async def interrupted(_reached: asyncio.Event) -> None:
    raise Halt


BODIES = [(fine, "ok"), (broken, "error"), (endless, "cancelled"), (interrupted, "error")]
Body = Callable[[asyncio.Event], Any]


async def run(work: Callable[[asyncio.Event], Any]) -> None:
    """Run to the end, however that comes; what waits for ever is cancelled."""
    reached = asyncio.Event()

    async def held() -> BaseException | None:
        try:
            await work(reached)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return error
        return None

    task = asyncio.create_task(held())
    waiting = asyncio.create_task(reached.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    task.cancel()
    await asyncio.wait((task,))


@pytest.mark.parametrize(("body", "status"), BODIES)
async def test_a_turn_has_one_beginning_and_one_end_however_it_ends(
    body: Body, status: str
) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        spans: list[str] = []

        async def work(reached: asyncio.Event) -> None:
            async with ctx.turn() as turn:
                spans.append(turn.span_id)
                await ctx.add_message(USER)
                await body(reached)

        await run(work)
        found = await ends_of(engine, spans[0], "prompt:submit", "prompt:complete")
        assert found == [("prompt:submit", "ok"), ("prompt:complete", status)]
        of_turn = [record.type for record in await recorded(engine) if record.turn_id is not None]
        assert of_turn == ["prompt:submit", "context:message_added", "prompt:complete"]


@pytest.mark.parametrize(("body", "status"), BODIES)
async def test_a_model_call_has_one_request_and_one_response_or_error(
    body: Body, status: str
) -> None:
    names = ("provider:request", "provider:response", "provider:error")
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        spans: list[str] = []

        async def work(reached: asyncio.Event) -> None:
            turn = ctx.turn()
            async with turn, turn.iteration() as cycle, cycle.provider_call("m", "p") as call:
                spans.append(call.span_id)
                await body(reached)

        await run(work)
        end = ("provider:response", "ok") if status == "ok" else ("provider:error", status)
        assert await ends_of(engine, spans[0], *names) == [("provider:request", "ok"), end]


@pytest.mark.parametrize(("body", "status"), BODIES)
async def test_a_tool_call_has_one_pre_and_one_post_or_error_in_parallel_too(
    body: Body, status: str
) -> None:
    names = ("tool:pre", "tool:post", "tool:error")
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        spans: list[str] = []

        async def work(reached: asyncio.Event) -> None:
            async with ctx.turn() as turn, turn.iteration() as cycle:

                async def tool(number: int) -> None:
                    async with cycle.tool_call(f"tool{number}", f"c{number}") as call:
                        spans.append(call.span_id)
                        if len(spans) == 3:
                            await body(reached)
                        else:
                            await fine(reached)

                for number in range(2):
                    await tool(number)
                await asyncio.gather(tool(2))

        await run(work)
        end = ("tool:post", "ok") if status == "ok" else ("tool:error", status)
        assert await ends_of(engine, spans[0], *names) == [("tool:pre", "ok"), ("tool:post", "ok")]
        assert await ends_of(engine, spans[2], *names) == [("tool:pre", "ok"), end]
        assert Counter(record.type for record in await recorded(engine))["tool:pre"] == 3


async def test_a_model_call_that_fails_in_a_turn_ends_before_the_turn_does() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        with pytest.raises(OSError, match="gone"):
            async with ctx.turn() as turn, turn.iteration() as cycle, cycle.provider_call("m"):
                raise OSError("gone")
        found = [record.type for record in await recorded(engine)][-2:]
        assert found == ["provider:error", "prompt:complete"]


async def test_numbers_of_turns_never_repeat_across_engines_and_turns_that_failed(
    tmp_path: Path,
) -> None:
    for _ in range(3):
        async with eventctx.open(tmp_path / "s.db") as engine:
            ctx = await engine.session("s")
            async with ctx.turn():
                pass
            with pytest.raises(ZeroDivisionError):
                async with ctx.turn():
                    raise ZeroDivisionError
    async with eventctx.open(tmp_path / "s.db") as engine:
        begun = [decode_event(r) for r in await recorded(engine) if r.type == "prompt:submit"]
        assert [event.number for event in begun] == [1, 2, 3, 4, 5, 6]  # type: ignore[union-attr]


async def test_a_stream_begins_with_its_start_and_a_fork_with_its_fork() -> None:
    async with eventctx.open() as engine:
        ctx: Context = await engine.session("s")
        await ctx.add_message(USER)
        await ctx.close()
        await engine.fork("s", 1, "child")
        child = await engine.session("child")
        await child.add_message(USER)
        found = [record.type for record in await recorded(engine, "child")]
        assert found.count("session:start") == found.count("session:fork") == 1
        assert (found[0], found[2]) == ("session:start", "session:fork")


async def test_a_request_and_a_plan_are_in_the_log_before_the_messages_are_returned(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        ctx = await filled(engine, max_tokens=4_000)
        view = await ctx.get_messages_for_request()
        async with eventctx.open(path) as other:
            seen = [decode_event(record) for record in await recorded(other)]
        prepared = [event for event in seen if isinstance(event, events.RequestPrepared)][-1]
        assert prepared.messages == len(view)
        assert any(isinstance(event, events.PostCompact) for event in seen)
