"""What all providers have in common, said once for each of the three APIs."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings

import eventctx
from eventctx import Context, Engine
from eventctx.orchestrators import EventsOrchestrator, StreamingOrchestrator
from eventctx.orchestrators.protocol import (
    Answer,
    Chunk,
    Ids,
    Request,
    StreamingProvider,
    ToolDefinition,
    ToolOutcome,
)
from eventctx.queries.spans import spans
from eventctx.session.settings import resolve_budget
from tests.how_much import some
from tests.orchestrators.agents import Waits, activity, records
from tests.orchestrators.providers.conftest import Connect
from tests.orchestrators.providers.kits import ANTHROPIC, CHAT, RESPONSES, Kit
from tests.orchestrators.providers.server import Server, json_reply, refused, serving, streamed
from tests.transcripts import Story, stories

IDS = Ids("s", "t1", "00f067aa0ba902b7", None, 1, "4bf92f3577b34da6a3ce929d0e0e4736")
HELLO = {"role": "user", "content": "Is it fair?"}
READ = ToolDefinition("read", "Reads a file.", {"type": "object", "properties": {}})


def hello(*tools: ToolDefinition) -> Request:
    return Request([HELLO], IDS, tools)


async def heard(provider: StreamingProvider, request: Request) -> list[Chunk | Answer]:
    return [piece async for piece in provider.stream(request)]


async def test_an_answer_says_what_the_api_said(kit: Kit, connect: Connect, server: Server) -> None:
    server.replies = [json_reply(kit.text)]
    answer = await connect(kit).complete(hello())
    assert answer.text == "Fair enough."
    assert answer.calls == ()
    assert answer.response_id == kit.text["id"]
    assert answer.model == kit.text["model"]
    assert answer.usage is not None
    assert (answer.usage.prompt, answer.usage.output) == (130, 7)
    assert (answer.usage.cache_read, answer.usage.reasoning) == (100, 3)


async def test_options_about_tools_go_into_requests_with_tools_alone(
    kit: Kit, connect: Connect, server: Server
) -> None:
    server.replies = [json_reply(kit.text) for _ in range(2)]
    wanted: Any = {"type": "auto"} if kit is ANTHROPIC else "required"
    options: dict[str, Any] = {"tool_choice": wanted}
    if kit is not ANTHROPIC:
        options["parallel_tool_calls"] = False
    provider = connect(kit, **options)
    await provider.complete(hello(READ))
    await provider.complete(hello())
    with_tools, without = [one.body for one in server.requests]
    assert {name: with_tools[name] for name in options} == options
    assert not options.keys() & without.keys()


async def test_a_streamed_answer_is_the_same_as_a_whole_one(
    kit: Kit, connect: Connect, server: Server
) -> None:
    server.replies = [json_reply(kit.text), streamed(kit.text_events)]
    provider = connect(kit)
    whole = await provider.complete(hello())
    *chunks, last = await heard(provider, hello())
    assert last == whole
    assert [c.text for c in chunks if isinstance(c, Chunk) and c.kind == "thinking"] == [
        "Is it",
        " fair?",
    ]
    assert [c.text for c in chunks if isinstance(c, Chunk) and c.kind == "text"] == [
        "Fair",
        " enough.",
    ]
    assert [c.block for c in chunks if isinstance(c, Chunk)] == [0, 0, 1, 1]
    assert server.requests[1].body["stream"] is True


async def test_a_call_goes_back_with_its_result(
    ctx: Context, kit: Kit, connect: Connect, server: Server
) -> None:
    server.replies = [json_reply(kit.call), json_reply(kit.text)]
    provider = connect(kit)
    await ctx.add_message(HELLO)
    answer = await provider.complete(Request(await ctx.get_messages_for_request(), IDS, (READ,)))
    (call,) = answer.calls
    assert (call.id, call.name, call.arguments) == ("c1", "read", {"path": "a.py"})
    for message in (answer.message, *answer.more):
        await ctx.add_message(message)
    await ctx.add_message(provider.result_message(ToolOutcome(call, "print(1)")))
    view = await ctx.get_messages_for_request(provider=provider)
    assert (await provider.complete(Request(view, IDS, (READ,)))).text == "Fair enough."
    assert server.requests[1].body["tools"] == provider.definitions([READ])
    assert "print(1)" in str(server.requests[1].body)


async def test_the_span_goes_along_as_a_header(kit: Kit, connect: Connect, server: Server) -> None:
    server.replies = [json_reply(kit.text), json_reply(kit.text), json_reply(kit.text)]
    await connect(kit, extra_headers={"x-team": "blue"}).complete(hello())
    await connect(kit, propagate=False).complete(hello())
    await connect(kit).complete(Request([HELLO], Ids("s")))
    headers = [one.headers for one in server.requests]
    assert headers[0]["traceparent"] == f"00-{IDS.trace_id}-{IDS.span_id}-01"
    assert headers[0]["x-team"] == "blue"
    assert "traceparent" not in headers[1] and "traceparent" not in headers[2]


async def test_an_option_goes_into_every_request_and_none_leaves_it_out(
    kit: Kit, connect: Connect, server: Server
) -> None:
    server.replies = [json_reply(kit.text), streamed(kit.text_events)]
    provider = connect(kit, metadata={"user_id": "u"}, service_tier=None)
    await provider.complete(hello())
    await heard(provider, hello())
    assert [one.body["metadata"] for one in server.requests] == [{"user_id": "u"}] * 2
    assert not any("service_tier" in one.body for one in server.requests)


async def test_an_option_that_the_sdk_does_not_know_is_a_setting_to_correct(
    kit: Kit, connect: Connect, server: Server
) -> None:
    with pytest.raises(eventctx.InvalidSetting, match="fantasy"):
        await connect(kit, fantasy=1).complete(hello())
    assert server.requests == []


@pytest.mark.parametrize("name", ["messages", "input", "stream"])
async def test_what_the_provider_says_itself_is_no_option(
    kit: Kit, connect: Connect, name: str
) -> None:
    with pytest.raises(eventctx.InvalidSetting, match=name):
        connect(kit, **{name: []})


async def test_a_budget_follows_from_the_window(kit: Kit, connect: Connect) -> None:
    largest = "max_tokens" if kit is ANTHROPIC else "max_output_tokens"
    provider: Any = connect(kit, context_window=50_000, **{largest: 4_000})
    assert await resolve_budget(None, provider, None, 200_000) == 50_000 - 4_000 - 1_000
    assert connect(kit).get_info() == {}  # type: ignore[attr-defined]


async def test_cancelling_closes_the_connection(kit: Kit, connect: Connect, server: Server) -> None:
    server.replies = [streamed(kit.text_events[:4], "stalled")]
    waiting = asyncio.create_task(heard(connect(kit), hello()))
    await server.reached.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await server.closed.wait()


# -- in the orchestrators --------------------------------------------------------------------------


KNOWN = ("server.address", "server.port", "gen_ai.request.max_tokens", "gen_ai.request.stream")


def read(path: str) -> str:
    """Reads a file."""
    return f"contents of {path}"


async def test_an_agent_runs_on_each_api(
    engine: Engine, ctx: Context, kit: Kit, connect: Connect, server: Server
) -> None:
    server.replies = [json_reply(kit.call), json_reply(kit.text), json_reply(kit.text)]
    agent = EventsOrchestrator(sleep=Waits())
    providers = {kit.name: connect(kit)}
    response = await agent.execute("Is it fair?", ctx, providers, [read])
    assert response.text == "Fair enough."
    assert response.iterations == 2
    assert "contents of a.py" in str(server.requests[1].body)
    assert (await agent.execute("Sure?", ctx, providers, [read])).text == "Fair enough."
    await ctx.close()
    assert (await engine.verify("s")).problems == ()
    assert activity(await records(engine)).count("tool:post") == 1


async def test_each_api_is_streamed_to_the_reader(
    engine: Engine, ctx: Context, kit: Kit, connect: Connect, server: Server
) -> None:
    server.replies = [streamed(kit.text_events), json_reply(kit.text)]
    stream = StreamingOrchestrator().stream("Is it fair?", ctx, {"p": connect(kit)})
    async with aclosing(stream) as pieces:
        found = [piece async for piece in pieces]
    texts = [one.text for one in found if isinstance(one, Chunk) and one.kind == "text"]
    assert texts == ["Fair", " enough."]
    assert str(found[-1]) == "Fair enough."
    agent = EventsOrchestrator(sleep=Waits())
    assert (await agent.execute("Sure?", ctx, {"p": connect(kit)})).text == "Fair enough."
    assert server.requests[1].body != server.requests[0].body
    chats = [
        {name: value for name, value in one.attributes.items() if name in KNOWN}
        async for one in spans(engine.store, "s")
        if one.name.startswith("chat ")
    ]
    known = dict(zip(KNOWN, ("127.0.0.1", int(server.url.rpartition(":")[2])), strict=False))
    if kit is ANTHROPIC:
        known["gen_ai.request.max_tokens"] = 8_192
    assert chats == [known | {"gen_ai.request.stream": True}, known]


# -- any session -----------------------------------------------------------------------------------


DIALECTS = {"anthropic": ANTHROPIC, "openai": CHAT, "responses": RESPONSES}


async def asked(kit: Kit, story: Story) -> Server:
    """Let a context hold the story, and ask with its view, whole and compacted."""
    async with (
        serving(Server(refused)) as server,
        kit.connect(server.url) as client,
        eventctx.open() as engine,
    ):
        ctx = await engine.session("s")
        for message in story.messages:
            await ctx.add_message(message)
        await ctx.add_message({"role": "user", "content": "And now?"})
        provider = kit.provider(client)
        for budget in (200_000, 3_000):
            server.replies = [json_reply(kit.text)]
            view = await ctx.get_messages_for_request(token_budget=budget)
            await provider.complete(Request(view, Ids("s")))
        return server


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_session_of_any_story_makes_a_request_that_is_taken(dialect: str) -> None:
    @settings(max_examples=some(12, 100), deadline=None)
    @given(stories(dialect))
    def holds(story: Story) -> None:
        server = asyncio.run(asked(DIALECTS[dialect], story))
        assert len(server.requests) == 2

    holds()


async def test_keys_that_hosts_and_contexts_write_are_not_sent(
    kit: Kit, connect: Connect, server: Server
) -> None:
    server.replies = [json_reply(kit.text)]
    theirs = {"metadata": {"_seq": 1}, "timestamp": "2026-01-01", "_stubbed": True}
    await connect(kit).complete(Request([{**HELLO, **theirs}], IDS))
    (sent,) = server.requests
    assert not any(str(key) in str(sent.body) for key in theirs)


async def test_what_a_server_runs_itself_is_offered_behind_the_tools(
    kit: Kit, connect: Connect, server: Server
) -> None:
    server.replies = [json_reply(kit.text)]
    search = {"type": "web_search"}
    provider = connect(kit, tools=[search])
    await provider.complete(hello(READ))
    assert server.requests[0].body["tools"] == [*provider.definitions([READ]), search]


async def test_no_usage_is_not_a_usage_of_nothing(
    kit: Kit, connect: Connect, server: Server
) -> None:
    server.replies = [json_reply({key: value for key, value in kit.text.items() if key != "usage"})]
    assert (await connect(kit).complete(hello())).usage is None
