"""Turns: the blocks of `ctx.turn()`, and what the catalogue promises of their activity events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, TurnError
from eventctx.log import events
from eventctx.log.codec import decode_event
from eventctx.log.events import ToolError, ToolPost
from eventctx.log.record import Record
from eventctx.orchestrators import BasicOrchestrator
from eventctx.session.context import Context
from eventctx.session.scope import current_scope
from eventctx.testing import FixedClock, FixedRandom
from eventctx.testing.providers import ScriptedProvider
from tests.session.given import opened
from tests.sessions import filled, names

QUESTION = {"role": "user", "content": "a"}
TOOL_ENDS = ("tool:post", "tool:error")


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
    engine, ctx = await opened()
    host = ctx.following()
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
    assert (await names(engine))[2:] == ["tool:pre", "tool:error", "prompt:complete"]


async def test_a_turn_has_a_random_uuid_and_no_inner_blocks_before_it_is_entered() -> None:
    _, ctx = await opened()
    turn, other = ctx.turn(), ctx.turn()
    assert turn.turn_id != other.turn_id and len(turn.turn_id) == 32 and turn.turn_id[12] == "4"
    with pytest.raises(TurnError, match=r"enter it first, `async with ctx.turn\(\) as turn`"):
        turn.iteration()
    async with turn:
        cycle = turn.iteration()
        for make in (cycle.provider_call, cycle.plan, lambda: cycle.tool_call("t")):
            with pytest.raises(TurnError, match=r"async with turn.iteration\(\) as cycle"):
                make()


async def test_a_block_is_entered_once_and_says_how_to_go_on() -> None:
    engine, ctx = await opened()
    turn = ctx.turn()
    async with turn:
        cycle = turn.iteration()
        async with cycle:
            await entered_twice(cycle.plan(), "make a new planning phase")
            await entered_twice(cycle.provider_call(), "make a new model call")
            await entered_twice(cycle.tool_call("t"), "make a new tool call")
        await entered_twice(cycle, r"make a new one, `turn.iteration\(\)`", entered=True)
    await entered_twice(turn, "make a new turn", entered=True)
    starts = {"prompt:submit", "plan:start", "provider:request", "tool:pre"}
    spans = [one.span_id async for one in engine.records("s") if one.type in starts]
    assert len(spans) == len(set(spans)) == 4
    assert current_scope() is None


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
    engine, ctx = await opened()
    async with ctx.turn() as turn, turn.iteration() as cycle:
        async with cycle.tool_call("read", "c1") as call:
            call.failed("OSError", "no such file")
        with pytest.raises(KeyError):
            async with cycle.tool_call("read", "c2") as call:
                call.failed("OSError")
                raise KeyError("later")
        wrong: Any = None
        async with cycle.tool_call("read", "c3") as call:
            with pytest.raises(InvalidSetting, match="kind: expected a text"):
                call.failed(wrong)
            with pytest.raises(InvalidSetting, match="message: expected a text"):
                call.failed("OSError", wrong)
    assert [decode_event(one) for one in await recorded(engine) if one.type in TOOL_ENDS] == [
        ToolError("read", "OSError", "c1", "no such file"),
        ToolError("read", "OSError", "c2", ""),
        ToolPost("read", "c3"),
    ]


async def recorded(engine: Engine, session: str = "s") -> list[Record]:
    return [record async for record in engine.records(session)]


class Halt(BaseException):
    """What is no Exception and no cancellation, as the end of a program is."""


CANCELLED = asyncio.CancelledError()
ENDS: list[tuple[BaseException | None, str]] = [
    *[(None, "ok"), (OSError("no such thing"), "error")],
    *[(CANCELLED, "cancelled"), (Halt(), "error")],
]


async def end_with(error: BaseException | None, reached: asyncio.Event) -> None:
    if error is CANCELLED:  # by whoever waits for it
        reached.set()
        await asyncio.Event().wait()
    elif error is not None:
        raise error


async def run(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run to the end, however that comes; what waits for ever is cancelled."""
    reached = asyncio.Event()
    task, waiting = asyncio.create_task(work(reached)), asyncio.create_task(reached.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


BLOCKS = {
    "turn": ("prompt:submit", "prompt:complete", "prompt:complete"),
    "call": ("provider:request", "provider:response", "provider:error"),
    "tool": ("tool:pre", *TOOL_ENDS),
}


@pytest.mark.parametrize(("error", "status"), ENDS)
@pytest.mark.parametrize("what", BLOCKS)
async def test_a_block_has_one_beginning_and_one_end_however_it_ends_also_beside_others(
    what: str, error: BaseException | None, status: str
) -> None:
    engine, ctx = await opened()
    spans: list[str] = []

    async def work(reached: asyncio.Event) -> None:
        async with ctx.turn() as turn, turn.iteration() as cycle:
            await ctx.add_message(QUESTION)

            blocks: dict[str, Callable[[], Any]] = {
                "turn": lambda: nullcontext(turn),
                "call": lambda: cycle.provider_call("m", "p"),
                "tool": lambda: cycle.tool_call("read", "c"),
            }

            async def inside(error: BaseException | None = None) -> None:
                async with blocks[what]() as block:
                    spans.append(block.span_id)
                    await end_with(error, reached)

            if what == "tool":
                await inside()
                await asyncio.gather(inside(), inside(error))
            else:
                await inside(error)

    await run(work)
    began, good, bad = BLOCKS[what]
    last = (good, "ok") if status == "ok" else (bad, status)
    found = [
        (one.span_id, one.type, getattr(decode_event(one), "status", "ok"))
        for one in await recorded(engine)
        if one.type in BLOCKS[what]
    ]
    for span, end in zip(spans, [*[(good, "ok")] * (len(spans) - 1), last], strict=True):
        assert [rest for of, *rest in found if of == span] == [[began, "ok"], list(end)]
    assert len(found) == 2 * len(spans)
    in_turn = [one.type for one in await recorded(engine) if one.turn_id is not None]
    outside = [kind for kind in in_turn if kind not in BLOCKS[what] or what == "turn"]
    assert outside == ["prompt:submit", "context:message_added", "prompt:complete"]
    assert in_turn[-1] == "prompt:complete"


async def test_numbers_of_turns_never_repeat_also_behind_failed_ones(tmp_path: Path) -> None:
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
    engine, _ = await opened(QUESTION)
    await engine.fork("s", 1, "child")
    await (await engine.session("child")).add_message(QUESTION)
    added = "context:message_added"
    assert await names(engine, "child") == ["session:start", added, "session:fork", added]


async def test_request_and_plan_are_in_the_log_before_messages_return(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        ctx = await filled(engine, max_tokens=4_000)
        view = await ctx.get_messages_for_request()
        async with eventctx.open(path) as other:
            seen = [decode_event(record) for record in await recorded(other)]
        prepared = [event for event in seen if isinstance(event, events.RequestPrepared)][-1]
        assert prepared.messages == len(view)
        assert any(isinstance(event, events.PostCompact) for event in seen)
