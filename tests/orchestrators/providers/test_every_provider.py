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
from eventctx.orchestrators.protocol import Answer, Chunk, Ids, Request, ToolDefinition, ToolOutcome
from eventctx.queries.spans import spans
from eventctx.session.settings import resolve_budget
from tests.how_much import some
from tests.orchestrators.agents import Waits, records
from tests.orchestrators.providers.conftest import Api
from tests.orchestrators.providers.kits import ANTHROPIC, CHAT, RESPONSES, Kit
from tests.orchestrators.providers.server import Server, json_reply, refused, serving, streamed
from tests.transcripts import Story, stories

IDS = Ids("s", "t1", "00f067aa0ba902b7", None, 1, "4bf92f3577b34da6a3ce929d0e0e4736")
HELLO = {"role": "user", "content": "Is it fair?"}
READ = ToolDefinition("read", "Reads a file.", {"type": "object", "properties": {}})


def hello(*tools: ToolDefinition) -> Request:
    return Request([HELLO], IDS, tools)


async def heard(provider: Any, request: Request) -> list[Chunk | Answer]:
    return [piece async for piece in provider.stream(request)]


async def test_a_streamed_answer_is_the_same_as_a_whole_one(kit: Kit, api: Api) -> None:
    provider = api.connect(kit, kit.text, kit.text_events)
    answer = await provider.complete(hello())
    *chunks, last = await heard(provider, hello())
    assert last == answer
    assert [(c.kind, c.text, c.block) for c in chunks if isinstance(c, Chunk)] == [
        *[("thinking", "Is it", 0), ("thinking", " fair?", 0)],
        *[("text", "Fair", 1), ("text", " enough.", 1)],
    ]
    assert api.bodies[1]["stream"] is True
    assert (answer.text, answer.calls) == ("Fair enough.", ())
    assert (answer.response_id, answer.model) == (kit.text["id"], kit.text["model"])
    used = answer.usage
    assert used and (used.prompt, used.output, used.cache_read, used.reasoning) == (130, 7, 100, 3)


async def test_no_usage_is_not_a_usage_of_nothing(kit: Kit, api: Api) -> None:
    without = {key: value for key, value in kit.text.items() if key != "usage"}
    assert (await api.connect(kit, without).complete(hello())).usage is None


async def test_options_about_tools_go_into_requests_with_tools_alone(kit: Kit, api: Api) -> None:
    options: dict[str, Any] = {"tool_choice": {"type": "auto"}}
    if kit is not ANTHROPIC:
        options = {"tool_choice": "required", "parallel_tool_calls": False}
    search = {"type": "web_search"}
    provider = api.connect(kit, kit.text, kit.text, tools=[search], **options)
    await provider.complete(hello(READ))
    await api.connect(kit, **options).complete(hello())
    with_tools, without = api.bodies
    assert {name: with_tools[name] for name in options} == options
    assert not options.keys() & without.keys()
    # What a server runs itself comes after the tools.
    assert with_tools["tools"] == [*provider.definitions([READ]), search]


async def test_that_no_tool_may_be_called_is_told_in_each_apis_own_words(
    kit: Kit, api: Api
) -> None:
    provider = api.connect(kit, kit.text, kit.text)
    await provider.complete(Request([HELLO], IDS, (READ,), "none"))
    await provider.complete(hello(READ))
    chosen, free = api.bodies
    assert chosen["tool_choice"] == ({"type": "none"} if kit is ANTHROPIC else "none")
    assert "tool_choice" not in free and free["tools"] == chosen["tools"]


async def test_a_call_goes_back_with_its_result(ctx: Context, kit: Kit, api: Api) -> None:
    provider = api.connect(kit, kit.call, kit.text)
    await ctx.add_message(HELLO)
    answer = await provider.complete(Request(await ctx.get_messages_for_request(), IDS, (READ,)))
    (call,) = answer.calls
    assert (call.id, call.name, call.arguments) == ("c1", "read", {"path": "a.py"})
    for message in (answer.message, *answer.more):
        await ctx.add_message(message)
    await ctx.add_message(provider.result_message(ToolOutcome(call, "print(1)")))
    view = await ctx.get_messages_for_request(provider=provider)
    assert (await provider.complete(Request(view, IDS, (READ,)))).text == "Fair enough."
    assert api.bodies[1]["tools"] == provider.definitions([READ])
    assert "print(1)" in str(api.bodies[1])


async def test_the_span_goes_along_as_a_header(kit: Kit, api: Api) -> None:
    api.answers(kit.text, kit.text, kit.text)
    await api.connect(kit, extra_headers={"x-team": "blue"}).complete(hello())
    await api.connect(kit, propagate=False).complete(hello())
    await api.connect(kit).complete(Request([HELLO], Ids("s")))
    first, second, third = [one.headers for one in api.requests]
    assert first["traceparent"] == f"00-{IDS.trace_id}-{IDS.span_id}-01"
    assert first["x-team"] == "blue"
    assert "traceparent" not in second and "traceparent" not in third


async def test_an_option_goes_into_every_request_and_none_out_of_it(kit: Kit, api: Api) -> None:
    options: Any = {"metadata": {"user_id": "u"}, "service_tier": None}
    provider = api.connect(kit, kit.text, kit.text_events, **options)
    theirs = {"metadata": {"_seq": 1}, "timestamp": "2026-01-01", "_stubbed": True}
    await provider.complete(Request([{**HELLO, **theirs}], IDS))
    await heard(provider, hello())
    assert [one["metadata"] for one in api.bodies] == [{"user_id": "u"}] * 2
    assert not any("service_tier" in one for one in api.bodies)
    # Nor do the keys that hosts and contexts write go along.
    assert not any(word in str(api.bodies) for word in ("_seq", "timestamp", "_stubbed"))


async def test_an_option_that_the_sdk_does_not_know_is_to_correct(kit: Kit, api: Api) -> None:
    with pytest.raises(eventctx.InvalidSetting, match="fantasy"):
        await api.connect(kit, fantasy=1).complete(hello())
    assert api.requests == []


@pytest.mark.parametrize("name", ["messages", "input", "stream"])
async def test_what_the_provider_says_itself_is_no_option(kit: Kit, api: Api, name: str) -> None:
    with pytest.raises(eventctx.InvalidSetting, match=name):
        api.connect(kit, **{name: []})


async def test_a_budget_follows_from_the_window(kit: Kit, api: Api) -> None:
    largest = "max_tokens" if kit is ANTHROPIC else "max_output_tokens"
    provider: Any = api.connect(kit, context_window=50_000, **{largest: 4_000})
    assert await resolve_budget(None, provider, None, 200_000) == 50_000 - 4_000 - 1_000
    assert api.connect(kit).get_info() == {}  # type: ignore[attr-defined]


async def test_cancelling_closes_the_connection(kit: Kit, api: Api) -> None:
    provider = api.connect(kit, streamed(kit.text_events[:4], "stalled"))
    waiting = asyncio.create_task(heard(provider, hello()))
    await api.reached.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await api.closed.wait()


# -- in the orchestrators --------------------------------------------------------------------------


KNOWN = ("server.address", "server.port", "gen_ai.request.max_tokens", "gen_ai.request.stream")


def read(path: str) -> str:
    """Reads a file."""
    return f"contents of {path}"


async def test_an_agent_runs_on_each_api(ctx: Context, kit: Kit, api: Api) -> None:
    agent = EventsOrchestrator(sleep=Waits())
    providers = {kit.name: api.connect(kit, kit.call, kit.text, kit.text)}
    response = await agent.execute("Is it fair?", ctx, providers, [read])
    assert (response.text, response.iterations) == ("Fair enough.", 2)
    assert "contents of a.py" in str(api.bodies[1])
    assert (await agent.execute("Sure?", ctx, providers, [read])).text == "Fair enough."
    assert len(await records(ctx, "tool:post")) == 1


async def test_each_api_streams_to_a_reader(
    engine: Engine, ctx: Context, kit: Kit, api: Api
) -> None:
    providers = {"p": api.connect(kit, kit.text_events, kit.text)}
    async with aclosing(StreamingOrchestrator().stream("Is it fair?", ctx, providers)) as pieces:
        found = [piece async for piece in pieces]
    texts = [one.text for one in found if isinstance(one, Chunk) and one.kind == "text"]
    assert texts == ["Fair", " enough."]
    assert str(found[-1]) == "Fair enough."
    agent = EventsOrchestrator(sleep=Waits())
    assert (await agent.execute("Sure?", ctx, providers)).text == "Fair enough."
    assert api.bodies[1] != api.bodies[0]
    chats = [
        {name: value for name, value in one.attributes.items() if name in KNOWN}
        async for one in spans(engine.store, "s")
        if one.name.startswith("chat ")
    ]
    known = dict(zip(KNOWN, ("127.0.0.1", int(api.url.rpartition(":")[2])), strict=False))
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
        await ctx.add_messages([*story.messages, {"role": "user", "content": "And now?"}])
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
