"""Streams, piece by piece in every round; turns that are broken off anywhere leave a whole log."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from amplifier_core import HookResult

import eventctx
from eventctx import Context
from eventctx.errors import ProviderFailed, TurnError
from eventctx.orchestrators import (
    BasicOrchestrator,
    Chunk,
    Response,
    StreamingOrchestrator,
    ToolRequest,
    server_sent_events,
)
from tests.how_much import some
from tests.loop_time import LIMIT, hang_past_the_limit, put_forward
from tests.orchestrators.agents import (
    HOOK_ENDS,
    CancelledAt,
    Doing,
    Heard,
    Scripted,
    Streaming,
    Waits,
    activity,
    calls,
    check_log,
    contents,
    go,
    pieces,
    records,
    says,
    tool,
    tools,
)


def parsed(stream: bytes) -> list[dict[str, Any]]:
    """Server-sent events as a browser reads them."""
    events = []
    for block in stream.decode().removesuffix("\n\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        events.append({**fields, "data": json.loads(fields["data"])})
    return events


async def test_nothing_is_shown_of_an_answer_that_is_asked_for_again(ctx: Context) -> None:
    bad = msgspec.structs.replace(says("wrong"), calls=(ToolRequest("1", "none", {}),))
    agent = StreamingOrchestrator(sleep=Waits())
    stream = agent.stream("go", ctx, {"p": Scripted(bad, says("right"))})
    assert [one async for one in stream if isinstance(one, Chunk)] == [Chunk("text", "right")]
    assert await contents(ctx) == ["go", "right"]


async def test_no_scope_of_a_stream_leaks_to_its_reader(ctx: Context) -> None:
    stream = StreamingOrchestrator().stream("go", ctx, {"p": Streaming(pieces("a"))})
    async with aclosing(stream):
        await anext(stream)
        await ctx.add_message({"role": "user", "content": "besides"})
    added = await records(ctx, "context:message_added")
    assert [one.turn_id is None for one in added if one.span_id is None] == [True]


async def test_the_host_hears_of_each_block_as_it_begins_grows_and_ends(ctx: Context) -> None:
    heard = Heard()
    await go(ctx, Streaming(pieces("one ", "two")), hooks=heard, loop=StreamingOrchestrator)
    blocks = [one for one in heard.events if one[0].startswith("content_block")]
    assert [(name.partition(":")[2], data.get("delta")) for name, data in blocks] == [
        *[("start", None), ("delta", "hm"), ("end", None), ("start", None)],
        *[("delta", "one "), ("delta", "two"), ("end", None)],
    ]
    assert blocks[-1][1]["block"] == {"type": "text", "text": "one two"}
    spans = {data["span_id"] for data in heard.of("provider:request")}
    assert {data["span_id"] for _, data in blocks} == spans


async def test_server_sent_events_are_what_a_browser_can_read(ctx: Context) -> None:
    provider = Streaming(pieces("line\none", " ü"))
    stream = StreamingOrchestrator().stream("go", ctx, {"p": provider}, turn_id="t")
    sent = [event async for event in server_sent_events(stream)]
    events = parsed(b"".join(sent))
    names = ["thinking", "text", "text", "response", "message.end"]
    assert [one["event"] for one in events] == names
    assert [one["id"] for one in events] == [*"01234"]
    assert events[1]["data"] == {"text": "line\none", "block": 1}
    assert events[3]["data"]["text"] == "line\none ü"
    assert events[3]["data"]["turn_id"] == "t"
    assert events[4]["data"] == {"turn_id": "t", "finish": "answered"}
    assert all(event.endswith(b"\n\n") and event.count(b"\n\n") == 1 for event in sent)


async def test_a_failure_is_the_last_server_sent_event(ctx: Context) -> None:
    provider = Streaming([Chunk("text", "So"), ProviderFailed("p", "gone")])
    stream = StreamingOrchestrator(sleep=Waits()).stream("go", ctx, {"p": provider})
    events = parsed(b"".join([event async for event in server_sent_events(stream)]))
    assert [one["event"] for one in events] == ["text", "error"]
    assert events[1]["data"]["type"] == "ProviderFailed"


async def test_a_bug_is_raised_and_its_words_are_not_sent() -> None:
    async def broken() -> AsyncIterator[Chunk | Response]:
        yield Chunk("text", "half \ud83d")
        raise KeyError("/secret/path")

    sent = []
    with pytest.raises(KeyError):
        async for event in server_sent_events(broken()):
            sent.append(event)  # noqa: PERF401 - what came before the error counts
    assert parsed(sent[0])[0]["data"]["text"] == "half ?"
    assert parsed(sent[1])[0]["event"] == "error"
    assert b"secret" not in sent[1]


async def test_a_browser_that_goes_away_ends_the_turn(ctx: Context) -> None:
    provider = Streaming([Chunk("text", "So "), asyncio.Event()])
    stream = StreamingOrchestrator().stream("go", ctx, {"p": provider})
    async with aclosing(server_sent_events(stream)) as events:
        await anext(events)
    assert activity(await records(ctx))[-2:] == ["provider:error", "prompt:complete"]
    assert (await contents(ctx))[-1] == "So "


# -- with tools: pieces of every round -------------------------------------------------------------


LOOK, LOOKING = tools(tool("look")), Chunk("text", "let me look")


async def test_pieces_of_every_round_come_as_the_model_writes_them(ctx: Context) -> None:
    more = asyncio.Event()
    provider = Streaming(
        [LOOKING, calls(("c1", "look"), ("c2", "look"))],
        [Chunk("text", "It is "), more, Chunk("text", "fine"), says("It is fine")],
    )
    agent = StreamingOrchestrator()
    async with aclosing(agent.stream("go", ctx, {"p": provider}, LOOK)) as stream:
        assert await anext(stream) == Chunk("text", "let me look", 0)
        assert await anext(stream) == Chunk("text", "It is ", 1)
        assert len(await records(ctx, "tool:post")) == 2
        more.set()
        assert await anext(stream) == Chunk("text", "fine", 1)
        response: Any = await anext(stream)
    assert (response.text, response.finish, response.iterations) == ("It is fine", "answered", 2)
    roles = [one["role"] for one in await ctx.get_messages()]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert [len(one.tools) for one in provider.requests] == [1, 1]


async def test_a_later_answer_that_breaks_is_kept_as_far_as_it_was_shown(ctx: Context) -> None:
    provider = Streaming(
        [LOOKING, calls(("c1", "look"))],
        [Chunk("text", "It is "), ProviderFailed("p", "gone", retryable=True)],
    )
    with pytest.raises(ProviderFailed):
        await go(ctx, provider, tool("look"), loop=StreamingOrchestrator)
    assert await contents(ctx) == ["go", None, "fine", "It is "]


async def test_a_denied_round_ends_the_stream_with_a_response(ctx: Context) -> None:
    async def deny(event: str, data: dict[str, Any]) -> Any:
        if event == "provider:request" and data["iteration"] == 2:
            return HookResult(action="deny", reason="too dear")
        return None

    provider = Streaming([LOOKING, calls(("c1", "look"))])
    stream = StreamingOrchestrator().stream("go", ctx, {"p": provider}, LOOK, [deny])
    shown, response = [piece async for piece in stream]
    assert shown == Chunk("text", "let me look") and isinstance(response, Response)
    assert (response.finish, response.text) == ("denied", "Operation denied: too dear")
    ends = ["provider:request", "provider:error", "prompt:complete"]
    assert activity(await records(ctx))[-3:] == ends


async def test_the_basic_one_asks_once_and_ignores_tools_where_it_is_told_to(ctx: Context) -> None:
    provider = Scripted(says("hello"))
    response = await go(ctx, provider, tool("look"), loop=BasicOrchestrator, tools="ignore")
    assert (response.text, response.iterations) == ("hello", 1)
    assert provider.requests[0].tools == ()


# -- turns that are broken off ---------------------------------------------------------------------


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


@pytest.mark.slow
async def test_on_disk_too_a_turn_can_be_cancelled_wherever_it_waits(tmp_path: Path) -> None:
    number, runs = 1, True
    while runs:
        async with eventctx.open(tmp_path / f"{number}.db") as engine:
            ctx, heard = await engine.session("s"), Heard()

            task = CancelledAt(long_turn(ctx, heard), number).task()
            await asyncio.wait({task})
            runs = task.cancelled()
            await sound(ctx, heard)
        number += 1
    assert number > 30


async def test_a_tool_that_clings_to_its_task_does_not_hold_up_the_turn(ctx: Context) -> None:
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
