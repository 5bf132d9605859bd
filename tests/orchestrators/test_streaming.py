"""Streaming: pieces as they come in every round, as server-sent events too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from amplifier_core import HookResult

from eventctx import Context
from eventctx.errors import ProviderFailed
from eventctx.orchestrators import (
    BasicOrchestrator,
    Chunk,
    Response,
    StreamingOrchestrator,
    ToolRequest,
    server_sent_events,
)
from tests.orchestrators.agents import (
    Heard,
    Scripted,
    Streaming,
    Waits,
    activity,
    calls,
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


LOOK = tools(tool("look"))


def thinking_then(answer: Any) -> list[Any]:
    return [Chunk("text", "let me look"), answer]


async def test_pieces_of_every_round_come_as_the_model_writes_them(ctx: Context) -> None:
    more = asyncio.Event()
    provider = Streaming(
        thinking_then(calls(("c1", "look"), ("c2", "look"))),
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
        thinking_then(calls(("c1", "look"))),
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

    provider = Streaming(thinking_then(calls(("c1", "look"))))
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
