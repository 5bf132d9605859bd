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
from eventctx import Context
from eventctx.errors import TurnError
from eventctx.orchestrators import Chunk, StreamingOrchestrator
from tests.how_much import some
from tests.loop_time import LIMIT, hang_past_the_limit, put_forward
from tests.orchestrators.agents import (
    HOOK_ENDS,
    Doing,
    Heard,
    Scripted,
    Streaming,
    calls,
    check_log,
    contents,
    go,
    pieces,
    says,
    tool,
)


async def steps(count: int, task: asyncio.Task[Any]) -> bool:
    """Let the loop turn so often; whether the task still runs."""
    for _ in range(count):
        if task.done():
            return False
        await asyncio.sleep(0)
    return not task.done()


async def next_turn_works(ctx: Context) -> None:
    script = Scripted(calls(("n", "look")), says("works"))
    assert (await go(ctx, script, tool("look"))).text == "works"
    await check_log(ctx)


def long_turn(ctx: Context, heard: Heard | None = None) -> Coroutine[Any, Any, Any]:
    """A turn with a plan, a tool that fails, an unknown one, and a provider that fails once."""
    provider = Scripted(
        says("a plan"),
        calls(("1", "look"), ("2", "fail"), ("3", "none")),
        ConnectionError("gone"),
        calls(("4", "look")),
        says("done"),
    )
    given = tool("look"), tool("fail", ValueError("no"))
    return go(ctx, provider, *given, hooks=heard, planning=True)


def whole(heard: Heard) -> None:
    """What a host was told began, it was told the end of, and of the turn's last event.

    A hook that is broken off while it hears of a beginning may not have noted it.
    """
    for begin, ends in HOOK_ENDS.items():
        told = Counter([data["span_id"] for data in heard.of(begin)])
        assert told <= Counter([data["span_id"] for end in ends for data in heard.of(end)]), begin
    assert heard.names[-1:] in (["orchestrator:complete"], [])


async def sound(ctx: Context, heard: Heard) -> None:
    """The log, the transcript and the host's hooks are whole, and the next turn works."""
    await check_log(ctx)
    # What is stored has a result for each call, so that any context manager can send it.
    transcript = await ctx.get_messages()
    made = [call["id"] for one in transcript for call in one.get("tool_calls", ())]
    assert sorted(made) == sorted(o["tool_call_id"] for o in transcript if o["role"] == "tool")
    whole(heard)
    await next_turn_works(ctx)


Begin = Callable[[Context, Heard], Coroutine[Any, Any, Any]]


async def cancelled_at_any_step(begin: Begin, by: int, times: int = 1) -> int:
    """Cancel a turn after so many steps of the loop, until one ends before; how many it took."""
    count, runs = 0, True
    while runs:
        async with eventctx.open() as engine:
            ctx, heard = await engine.session("s"), Heard()
            task = asyncio.create_task(begin(ctx, heard))
            runs = await steps(count, task)
            for _ in range(times):
                task.cancel()
                await steps(2, task)
            with suppress(asyncio.CancelledError):
                await task
            assert task.cancelled() == runs or times > 1
            await check_log(ctx)
            # A second cancellation may hinder the results of calls from being stored.
            await (sound(ctx, heard) if times == 1 else next_turn_works(ctx))
        count += by
    return count


@pytest.mark.slow
@pytest.mark.parametrize(("by", "times"), [(some(2, 1), 1), (3, 2)], ids=["once", "twice"])
async def test_a_turn_that_is_cancelled_at_any_step_leaves_a_whole_log(by: int, times: int) -> None:
    assert await cancelled_at_any_step(long_turn, by, times) > 40


@pytest.mark.slow
async def test_a_reader_that_is_cancelled_at_any_step_leaves_a_whole_log() -> None:
    def read(ctx: Context, heard: Heard) -> Coroutine[Any, Any, Any]:
        called = [Chunk("text", "let me look"), calls(("1", "look"), ("2", "fail"))]
        given = tool("look"), tool("fail", {"success": False, "error": "no"})
        provider = Streaming(called, pieces("a", "b", "c"))
        return go(ctx, provider, *given, hooks=heard, loop=StreamingOrchestrator)

    assert await cancelled_at_any_step(read, some(2, 1)) > 40


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
        async with eventctx.open(tmp_path / f"{number}.db") as engine:
            ctx, heard = await engine.session("s"), Heard()

            async def turn(work: Coroutine[Any, Any, Any], number: int) -> Any:
                return await CancelledAt(work, number)

            task = asyncio.create_task(turn(long_turn(ctx, heard), number))
            await asyncio.wait({task})
            runs = task.cancelled()
            await sound(ctx, heard)
        number += 1
    assert number > 30


async def test_a_tool_that_does_not_end_when_it_is_cancelled_does_not_hold_up_the_turn(
    ctx: Context,
) -> None:
    freed = asyncio.Event()

    async def cling(_: dict[str, Any]) -> None:
        while not freed.is_set():
            put_forward()
            with suppress(asyncio.CancelledError):
                await freed.wait()

    provider = Scripted(calls(("1", "cling")), says("I waited"))
    response = await go(ctx, provider, Doing("cling", cling), tool_timeout=LIMIT)
    assert response.text == "I waited"
    assert "longer than 30 s" in (await contents(ctx))[2]
    freed.set()


async def test_a_tool_that_cancels_itself_is_a_tool_that_failed(ctx: Context) -> None:
    provider = Scripted(calls(("1", "odd")), says("it broke"))
    assert (await go(ctx, provider, tool("odd", asyncio.CancelledError()))).text == "it broke"
    assert "cancelled from inside" in (await contents(ctx))[2]


@pytest.mark.parametrize(
    "event", ["tool:error", "provider:error", "prompt:complete", "execution:end"]
)
async def test_a_hook_that_hangs_does_not_hold_up_the_end_of_a_turn_that_took_too_long(
    ctx: Context, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def hook(said: str, _: dict[str, Any]) -> None:
        if said == event:
            await hang_past_the_limit()

    step = hang_past_the_limit if event == "provider:error" else calls(("1", "stuck"))
    stuck = Doing("stuck", hang_past_the_limit)
    turn = go(ctx, Scripted(step), stuck, hooks=[hook], turn_timeout=LIMIT)
    with pytest.raises(TurnError, match="took longer"):
        await asyncio.wait_for(turn, 10 * LIMIT)
    await check_log(ctx)
    await next_turn_works(ctx)
    assert f"the hooks of {event} took longer" in caplog.text


async def test_a_stream_that_is_closed_at_any_piece_leaves_a_whole_log() -> None:
    for count in range(6):
        async with eventctx.open() as engine:
            ctx, heard = await engine.session("s"), Heard()
            provider = Streaming(pieces("a", "b", "c"))
            stream = StreamingOrchestrator().stream("go", ctx, {"p": provider}, None, heard)
            for _ in range(count):
                await anext(stream)
            await stream.aclose()
            await sound(ctx, heard)


async def test_a_slow_reader_is_not_the_providers_fault(ctx: Context) -> None:
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
