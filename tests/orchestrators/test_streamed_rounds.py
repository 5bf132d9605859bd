"""Streaming with tools: pieces as they come in every round, and an end in every case."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from amplifier_core import HookResult

import eventctx
from eventctx.orchestrators import Chunk, Response, StreamingOrchestrator, server_sent_events
from tests.orchestrators.agents import (
    Doing,
    Heard,
    Scripted,
    Streaming,
    Waits,
    activity,
    calls,
    check_log,
    pieces,
    records,
    says,
    tool,
    tools,
)

LOOK = tools(tool("look"))


def thinking_then(answer: Any) -> list[Any]:
    return [Chunk("text", "let me look"), answer]


async def test_pieces_of_every_round_come_as_the_model_writes_them() -> None:
    more = asyncio.Event()
    provider = Streaming(
        thinking_then(calls(("c1", "look"), ("c2", "look"))),
        [Chunk("text", "It is "), more, Chunk("text", "fine"), says("It is fine")],
    )
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        agent = StreamingOrchestrator()
        async with aclosing(agent.stream("go", ctx, {"p": provider}, LOOK)) as stream:
            assert await anext(stream) == Chunk("text", "let me look", 0)
            assert await anext(stream) == Chunk("text", "It is ", 1)
            assert activity(await records(engine)).count("tool:post") == 2
            more.set()
            assert await anext(stream) == Chunk("text", "fine", 1)
            response = await anext(stream)
        assert isinstance(response, Response)
        assert (response.text, response.finish) == ("It is fine", "answered")
        assert response.iterations == 2
        roles = [one["role"] for one in await ctx.get_messages()]
        assert roles == ["user", "assistant", "tool", "tool", "assistant"]
        assert [len(one.tools) for one in provider.requests] == [1, 1]
        await check_log(engine)


async def test_a_provider_that_cannot_stream_runs_tools_too() -> None:
    provider = Scripted(calls(("c1", "look")), says("done"))
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        stream = StreamingOrchestrator().stream("go", ctx, {"p": provider}, LOOK)
        found = [piece async for piece in stream]
    assert found[0] == Chunk("text", "done")
    assert isinstance(found[1], Response)


async def test_the_rounds_end_at_the_limit() -> None:
    provider = Streaming(thinking_then(calls(("c1", "look"))), pieces("so far"))
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        agent = StreamingOrchestrator(max_iterations=1)
        response = await agent.execute("go", ctx, {"p": provider}, LOOK)
        assert (response.text, response.finish) == ("so far", "iteration_limit")
        await check_log(engine)


async def test_a_tool_that_fails_is_told_to_the_model() -> None:
    provider = Streaming([calls(("c1", "look"))], pieces("too bad"))
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        failing = tools(tool("look", OSError("no")))
        response = await StreamingOrchestrator().execute("go", ctx, {"p": provider}, failing)
        assert response.text == "too bad"
        assert "tool:error" in activity(await records(engine))
        await check_log(engine)


async def test_a_later_answer_that_breaks_is_kept_as_far_as_it_was_shown() -> None:
    provider = Streaming(
        thinking_then(calls(("c1", "look"))),
        [Chunk("text", "It is "), eventctx.ProviderFailed("p", "gone", retryable=True)],
    )
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        agent = StreamingOrchestrator(sleep=Waits())
        with pytest.raises(eventctx.ProviderFailed):
            await agent.execute("go", ctx, {"p": provider}, LOOK)
        contents = [one["content"] for one in await ctx.get_messages()]
        assert contents == ["go", None, "fine", "It is "]
        await check_log(engine)


async def test_a_later_answer_of_which_nothing_was_shown_is_asked_for_again() -> None:
    provider = Streaming(
        thinking_then(calls(("c1", "look"))),
        [eventctx.ProviderFailed("p", "busy", retryable=True)],
        pieces("done"),
    )
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        agent = StreamingOrchestrator(sleep=Waits())
        response = await agent.execute("go", ctx, {"p": provider}, LOOK)
        assert response.text == "done"
        await check_log(engine)


async def test_a_reader_that_goes_away_while_a_tool_runs_ends_it() -> None:
    running = asyncio.Event()

    async def hangs(_: dict[str, Any]) -> None:
        running.set()
        await asyncio.Event().wait()

    provider = Streaming(thinking_then(calls(("c1", "look"))))
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        stream = StreamingOrchestrator().stream(
            "go", ctx, {"p": provider}, tools(Doing("look", hangs))
        )
        async with aclosing(server_sent_events(stream)) as events:
            await anext(events)
            await running.wait()
        assert activity(await records(engine))[-2:] == ["tool:error", "prompt:complete"]
        contents = [one["content"] for one in await ctx.get_messages()]
        assert contents == ["go", None, "The call was cancelled before it ended."]
        await check_log(engine)


async def test_a_slow_reader_gets_the_pieces_of_all_rounds_in_order() -> None:
    many = [Chunk("text", f"{number} ") for number in range(40)]
    provider = Streaming(
        [*many, calls(("c1", "look"))],
        [*many, calls(("c2", "look"))],
        [*many, says("done")],
    )
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        stream = StreamingOrchestrator().stream("go", ctx, {"p": provider}, LOOK)
        found = [piece async for piece in stream]
    assert [piece.block for piece in found[:-1]] == [0] * 40 + [1] * 40 + [2] * 40
    assert [piece.text for piece in found[:-1]] == [one.text for one in many] * 3


async def test_hooks_count_the_blocks_of_each_answer_anew() -> None:
    heard = Heard()
    provider = Streaming(thinking_then(calls(("c1", "look"))), pieces("done"))
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await StreamingOrchestrator().execute("go", ctx, {"p": provider}, LOOK, heard)
    assert [one["block_index"] for one in heard.of("content_block:start")] == [0, 0, 1]
    assert len(heard.of("content_block:end")) == 3


async def test_a_denied_round_ends_the_stream_with_a_response() -> None:
    async def deny(event: str, data: dict[str, Any]) -> Any:
        if event == "provider:request" and data["iteration"] == 2:
            return HookResult(action="deny", reason="too dear")
        return None

    provider = Streaming(thinking_then(calls(("c1", "look"))))
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        found = [
            piece
            async for piece in StreamingOrchestrator().stream(
                "go", ctx, {"p": provider}, LOOK, [deny]
            )
        ]
        assert found[0] == Chunk("text", "let me look")
        assert isinstance(found[1], Response)
        assert (found[1].finish, found[1].text) == ("denied", "Operation denied: too dear")
        assert activity(await records(engine))[-3:] == [
            *("provider:request", "provider:error", "prompt:complete")
        ]
        await check_log(engine)
