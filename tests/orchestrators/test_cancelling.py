"""A turn that is broken off anywhere leaves a whole log, and the next turn works."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx import Context, Engine
from eventctx.errors import TurnError
from eventctx.orchestrators import Chunk, EventsOrchestrator, StreamingOrchestrator
from tests.how_much import some
from tests.loop_time import LIMIT, hang_past_the_limit, put_forward
from tests.orchestrators.agents import (
    HOOK_ENDS,
    Doing,
    Heard,
    Scripted,
    Streaming,
    Waits,
    calls,
    check_log,
    pieces,
    says,
    tool,
    tools,
)


async def steps(count: int, task: asyncio.Task[Any]) -> bool:
    """Let the loop turn so often; whether the task still runs."""
    for _ in range(count):
        if task.done():
            return False
        await asyncio.sleep(0)
    return not task.done()


async def next_turn_works(engine: Engine) -> None:
    """In the same process and in one that opens the log again."""
    ctx = await engine.session("s")
    response = await EventsOrchestrator().execute(
        "and now?", ctx, {"p": Scripted(calls(("n", "look")), says("works"))}, tools(tool("look"))
    )
    assert response.text == "works"
    await check_log(engine)


def long_turn() -> tuple[Scripted, dict[str, Doing], Heard]:
    provider = Scripted(
        says("a plan"),
        calls(("1", "look"), ("2", "fail"), ("3", "none")),
        ConnectionError("gone"),
        calls(("4", "look")),
        says("done"),
    )
    return provider, tools(tool("look"), tool("fail", ValueError("no"))), Heard()


def paired_in_any_order(transcript: list[dict[str, Any]]) -> None:
    """What is stored has a result for each call, so that any context manager can send it."""
    made = [call["id"] for one in transcript for call in one.get("tool_calls", ())]
    assert sorted(made) == sorted(o["tool_call_id"] for o in transcript if o["role"] == "tool")


def whole(heard: Heard) -> None:
    """What a host was told began, it was told the end of, and of the turn's last event.

    A hook that is broken off while it hears of a beginning may not have noted it.
    """
    for begin, ends in HOOK_ENDS.items():
        told = Counter([data["span_id"] for data in heard.of(begin)])
        assert told <= Counter([data["span_id"] for end in ends for data in heard.of(end)]), begin
    assert heard.names[-1:] in (["orchestrator:complete"], [])


async def sound(engine: Engine, heard: Heard) -> None:
    """The log, the transcript and the host's hooks are whole, and the next turn works."""
    await check_log(engine)
    paired_in_any_order(await (await engine.session("s")).get_messages())
    whole(heard)
    await next_turn_works(engine)


@pytest.mark.slow
async def test_a_turn_that_is_cancelled_at_any_step_leaves_a_whole_log() -> None:
    count, runs = 0, True
    while runs:
        provider, given, heard = long_turn()
        async with eventctx.open() as engine:
            ctx = await engine.session("s")
            agent = EventsOrchestrator(planning=True, sleep=Waits())
            task = asyncio.create_task(agent.execute("go", ctx, {"p": provider}, given, heard))
            runs = await steps(count, task)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert task.cancelled() == runs
            await sound(engine, heard)
        count += some(2, 1)
    assert count > 40


class CancelledAt:
    """A coroutine whose task is cancelled when it waits for the nth time."""

    def __init__(self, work: Coroutine[Any, Any, Any], number: int) -> None:
        self._work = work
        self._left = number

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        waits = self._work.__await__()
        send: Callable[[], Any] = partial(waits.send, None)
        while True:
            try:
                waited = send()
            except StopIteration as done:
                return done.value
            self._left -= 1
            if self._left == 0:
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                yield waited
                send = partial(waits.send, None)
            except BaseException as error:
                send = partial(waits.throw, error)


@pytest.mark.slow
async def test_on_disk_too_a_turn_can_be_cancelled_wherever_it_waits(tmp_path: Path) -> None:
    number, runs = 1, True
    while runs:
        provider, given, heard = long_turn()
        async with eventctx.open(tmp_path / f"{number}.db") as engine:
            ctx = await engine.session("s")
            agent = EventsOrchestrator(planning=True, sleep=Waits())

            async def turn(work: Coroutine[Any, Any, Any], number: int) -> Any:
                return await CancelledAt(work, number)

            work = agent.execute("go", ctx, {"p": provider}, given, heard)
            task = asyncio.create_task(turn(work, number))
            await asyncio.wait({task})
            runs = task.cancelled()
            await sound(engine, heard)
        number += 1
    assert number > 30


async def test_a_tool_that_does_not_end_when_it_is_cancelled_does_not_hold_up_the_turn(
    engine: Engine, ctx: Context
) -> None:
    freed = asyncio.Event()

    async def cling(_: dict[str, Any]) -> None:
        while not freed.is_set():
            put_forward()
            with suppress(asyncio.CancelledError):
                await freed.wait()

    provider = Scripted(calls(("1", "cling")), says("I waited"))
    agent = EventsOrchestrator(tool_timeout=LIMIT)
    response = await agent.execute("go", ctx, {"p": provider}, tools(Doing("cling", cling)))
    assert response.text == "I waited"
    assert "longer than 30 s" in (await ctx.get_messages())[2]["content"]
    await check_log(engine)
    freed.set()


@pytest.mark.parametrize(
    "event", ["tool:error", "provider:error", "prompt:complete", "execution:end"]
)
async def test_a_hook_that_hangs_does_not_hold_up_the_end_of_a_turn_that_took_too_long(
    engine: Engine, ctx: Context, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def hook(said: str, _: dict[str, Any]) -> None:
        if said == event:
            await hang_past_the_limit()

    provider = (
        Scripted(hang_past_the_limit)
        if event == "provider:error"
        else Scripted(calls(("1", "stuck")))
    )
    stuck = Doing("stuck", hang_past_the_limit)
    turn = EventsOrchestrator(turn_timeout=LIMIT).execute(
        "go on", ctx, {"p": provider}, tools(stuck), [hook]
    )
    with pytest.raises(TurnError, match="took longer"):
        await asyncio.wait_for(turn, 10 * LIMIT)
    await check_log(engine)
    await next_turn_works(engine)
    assert f"the hooks of {event} took longer" in caplog.text


async def test_a_stream_that_is_closed_at_any_piece_leaves_a_whole_log() -> None:
    for count in range(6):
        async with eventctx.open() as engine:
            ctx = await engine.session("s")
            heard = Heard()
            provider = Streaming(pieces("a", "b", "c"))
            stream = StreamingOrchestrator().stream("go", ctx, {"p": provider}, None, heard)
            for _ in range(count):
                await anext(stream)
            await stream.aclose()
            await check_log(engine)
            whole(heard)
            await next_turn_works(engine)


@pytest.mark.slow
async def test_a_reader_that_is_cancelled_at_any_step_leaves_a_whole_log() -> None:
    count, runs = 0, True
    while runs:
        async with eventctx.open() as engine:
            ctx = await engine.session("s")
            heard = Heard()
            called = [Chunk("text", "let me look"), calls(("1", "look"), ("2", "fail"))]
            provider = Streaming(called, pieces("a", "b", "c"))
            given = tools(tool("look"), tool("fail", {"success": False, "error": "no"}))
            task = asyncio.create_task(
                StreamingOrchestrator().execute("go", ctx, {"p": provider}, given, heard)
            )
            runs = await steps(count, task)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await sound(engine, heard)
        count += some(2, 1)
    assert count > 40


async def test_a_slow_reader_is_not_the_providers_fault(engine: Engine, ctx: Context) -> None:
    put_forward(0)
    provider = Streaming(pieces(*"abcdefghijklmnopqrstuvwxyz"))
    agent = StreamingOrchestrator(provider_timeout=LIMIT, max_retries=0)
    async with aclosing(agent.stream("go", ctx, {"p": provider})) as stream:
        await anext(stream)
        for _ in range(500):  # until the provider waits for the reader
            await asyncio.sleep(0)
        put_forward()
        await asyncio.sleep(0)
        assert len([piece async for piece in stream]) == 27
    await check_log(engine)


@pytest.mark.slow
async def test_a_turn_that_is_cancelled_twice_in_a_row_leaves_a_whole_log() -> None:
    count, runs = 0, True
    while runs:
        provider, given, _ = long_turn()
        async with eventctx.open() as engine:
            ctx = await engine.session("s")
            agent = EventsOrchestrator(planning=True, sleep=Waits())
            task = asyncio.create_task(agent.execute("go", ctx, {"p": provider}, given))
            runs = await steps(count, task)
            task.cancel()
            await steps(2, task)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await check_log(engine)
            await next_turn_works(engine)
        count += 3


async def test_a_tool_that_cancels_itself_is_a_tool_that_failed(
    engine: Engine, ctx: Context
) -> None:
    provider = Scripted(calls(("1", "odd")), says("it broke"))
    given = tools(tool("odd", asyncio.CancelledError()))
    response = await EventsOrchestrator().execute("go", ctx, {"p": provider}, given)
    assert response.text == "it broke"
    assert "cancelled from inside" in (await ctx.get_messages())[2]["content"]
    await check_log(engine)
