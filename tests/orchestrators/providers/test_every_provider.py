"""What all providers have in common, for each API: requests, answers, and what goes wrong."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
import tomllib
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import eventctx
from eventctx import Context, Engine
from eventctx.orchestrators import EventsOrchestrator, StreamingOrchestrator
from eventctx.orchestrators.protocol import Answer, Chunk, Ids, Request, ToolDefinition, ToolOutcome
from eventctx.orchestrators.providers import anthropic as anthropic_module
from eventctx.orchestrators.providers import openai_chat
from eventctx.orchestrators.providers.failures import PROBLEM_CHARACTERS, retry_after
from eventctx.queries.spans import spans
from eventctx.session.settings import resolve_budget
from tests.how_much import some
from tests.orchestrators.agents import Waits, records
from tests.orchestrators.providers.conftest import Api
from tests.orchestrators.providers.kits import ANTHROPIC, CHAT, RESPONSES, Kit
from tests.orchestrators.providers.server import (
    Reply,
    Server,
    json_reply,
    refused,
    serving,
    streamed,
)
from tests.transcripts import Story, stories

IDS = Ids("s", "t1", "00f067aa0ba902b7", None, 1, "4bf92f3577b34da6a3ce929d0e0e4736")
HELLO = {"role": "user", "content": "Is it fair?"}
READ = ToolDefinition("read", "Reads a file.", {"type": "object", "properties": {}})


def hello(*tools: ToolDefinition) -> Request:
    return Request([HELLO], IDS, tools)


async def heard(provider: Any, request: Request) -> list[Chunk | Answer]:
    return [piece async for piece in provider.stream(request)]


@pytest.mark.slow
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


@pytest.mark.slow
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


# -- what the API, the network or a gateway does wrong, and whether to try again -------------------


ASKED = Request([{"role": "user", "content": "hello"}], Ids("s"))
WAYS = ("complete", "stream")


async def failed(provider: Any, way: str) -> eventctx.ProviderFailed:
    """How a call fails, asked one way or the other."""
    with pytest.raises(eventctx.ProviderFailed) as caught:
        if way == "complete":
            await provider.complete(ASKED)
        else:
            async for _ in provider.stream(ASKED):
                pass
    return caught.value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (403, False), (408, True), (429, True), (500, True), (529, True)],
)
async def test_a_status_says_whether_to_try_again(
    kit: Kit, api: Api, way: str, status: int, retryable: bool
) -> None:
    refusal = kit.refusal("some_error", "It went wrong.")
    error = await failed(api.connect(kit, json_reply(refusal, status)), way)
    assert (error.status, error.retryable, error.too_long) == (status, retryable, False)
    assert error.problem == "It went wrong."
    assert error.provider in ("anthropic", "openai")
    assert error.__cause__ is not None
    assert len(api.requests) == 1, "each attempt is a call of its own"


@pytest.mark.parametrize("way", WAYS)
async def test_the_api_says_when_to_come_back_and_whether(kit: Kit, api: Api, way: str) -> None:
    refusal = kit.refusal("rate_limit_error", "Slow down.")
    provider = api.connect(kit, json_reply(refusal, 429, retry_after="7"), json_reply(refusal, 429))
    assert (await failed(provider, way)).retry_after == 7
    assert (await failed(provider, way)).retry_after is None
    api.answers(json_reply(refusal, 500, x_should_retry="false"))
    api.answers(json_reply(refusal, 400, x_should_retry="true"))
    assert not (await failed(provider, way)).retryable
    assert (await failed(provider, way)).retryable


DATE = "Wed, 21 Oct 2015 07:28:00 GMT"
LATER = "Wed, 21 Oct 2015 07:28:30 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": LATER, "date": DATE}, 30),
        ({"retry-after": LATER}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_the_wait_is_a_number_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


INVALID = "invalid_request_error"
LIMIT = "input length and `max_tokens` exceed context limit: 190 + 20 > 200"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("kit", "status", "kind", "message"),
    [
        (ANTHROPIC, 400, INVALID, "prompt is too long: 210 tokens > 200 maximum"),
        (ANTHROPIC, 400, INVALID, LIMIT),
        (ANTHROPIC, 413, "request_too_large", "Request exceeds the maximum size"),
        (CHAT, 400, "context_length_exceeded", "Too much."),
        (CHAT, 400, INVALID, "This model's maximum context length is 65536 tokens"),
        (RESPONSES, 400, "context_length_exceeded", "Your input exceeds the context window"),
    ],
    ids=lambda value: value.name if isinstance(value, Kit) else None,
)
async def test_a_request_that_does_not_fit_is_told_from_other_refusals(
    kit: Kit, api: Api, way: str, status: int, kind: str, message: str
) -> None:
    error = await failed(api.connect(kit, json_reply(kit.refusal(kind, message), status)), way)
    assert error.too_long and not error.retryable


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        ("overloaded_error", True),
        ("rate_limit_exceeded", True),
        ("invalid_request_error", False),
        ("insufficient_quota", False),
    ],
)
async def test_an_error_inside_a_stream_says_whether_to_try_again(
    kit: Kit, api: Api, kind: str, retryable: bool
) -> None:
    events = [*kit.text_events[:3], kit.broken(kind, "Overloaded")]
    error = await failed(api.connect(kit, events), "stream")
    assert (error.problem, error.retryable, error.status) == ("Overloaded", retryable, None)


async def test_a_response_that_failed_is_a_failed_call(api: Api) -> None:
    problem = {"code": "server_error", "message": "The model broke."}
    broken = {**RESPONSES.text, "status": "failed", "output": [], "error": problem}
    ended = {"type": "response.failed", "response": broken}
    provider = api.connect(RESPONSES, broken, [*RESPONSES.text_events[:-1], ended])
    for way in WAYS:
        error = await failed(provider, way)
        assert (error.problem, error.retryable) == ("The model broke.", True)


@pytest.mark.parametrize("ending", ["cut", "whole"])
async def test_a_stream_that_ends_too_soon_is_retryable(kit: Kit, api: Api, ending: str) -> None:
    # A chat completion has ended with its reason to finish, two parts before the stream's end.
    part = streamed(kit.text_events[: -4 if kit is CHAT else -1], ending)
    pieces: list[Chunk | Answer] = []
    with pytest.raises(eventctx.ProviderFailed) as caught:
        async for piece in api.connect(kit, part).stream(ASKED):
            pieces.append(piece)  # noqa: PERF401 - what came before the failure counts
    assert pieces and all(isinstance(piece, Chunk) for piece in pieces)
    assert caught.value.retryable and caught.value.status is None


@pytest.mark.slow
async def test_a_server_that_stalls_is_given_up(kit: Kit, api: Api) -> None:
    stalled = streamed(kit.text_events[:3], "stalled")
    error = await failed(api.connect(kit, stalled, timeout=1), "stream")
    assert error.retryable and "Timeout" in error.problem
    await api.closed.wait()


@pytest.mark.parametrize("status", [200, 502])
async def test_a_page_in_place_of_an_answer_is_quoted(kit: Kit, api: Api, status: int) -> None:
    page = b"<html>\n<h1>Bad gateway</h1>" + b"x" * 10_000
    answer = Reply([page], status, {"content-type": "text/html"})
    error = await failed(api.connect(kit, answer), "complete")
    assert error.retryable and "<html> <h1>Bad gateway</h1>" in error.problem
    assert len(error.problem) <= PROBLEM_CHARACTERS + 1


@pytest.mark.parametrize(
    "body",
    [
        "text",
        {},
        {"content": "text", "choices": [], "output": 1},
        {"content": [1], "choices": [1], "output": [1], "status": "completed"},
        {"content": None, "choices": [{"message": None}], "output": None},
        {"choices": [{"message": {"tool_calls": [{"function": "f"}]}}], "content": 1, "output": 1},
        {"choices": [{"message": {"tool_calls": 3}}], "content": {}, "output": {}},
    ],
)
async def test_json_that_is_no_answer_is_not_retryable(kit: Kit, api: Api, body: object) -> None:
    error = await failed(api.connect(kit, body), "complete")
    assert not error.retryable and "base_url" in error.problem


@pytest.mark.parametrize("event", ["{not json", '{"type": "message_delta"}', "3", "[]"])
async def test_a_stream_of_something_else_is_a_failed_call(kit: Kit, api: Api, event: str) -> None:
    head = "event: message_start\n" if kit is ANTHROPIC else ""
    sent = f"{head}data: {event}\n\n".encode()
    await failed(api.connect(kit, Reply([sent], 200, streamed([]).headers)), "stream")


@pytest.mark.parametrize(
    ("code", "retryable"), [(502, True), (429, True), (402, False), ("x", True)]
)
async def test_an_error_of_a_router_under_status_200(
    api: Api, code: object, retryable: bool
) -> None:
    broken = {"error": {"code": code, "message": "Upstream said no."}}
    error = await failed(api.connect(CHAT, broken), "complete")
    assert (error.problem, error.retryable) == ("Upstream said no.", retryable)


async def test_an_account_without_money_is_not_asked_again(api: Api) -> None:
    refusal = CHAT.refusal("insufficient_quota", "You exceeded your current quota.")
    assert not (await failed(api.connect(CHAT, json_reply(refusal, 429)), "complete")).retryable


# -- where a provider's client comes from ----------------------------------------------------------


LOWEST = {"anthropic": anthropic_module.LOWEST, "openai": openai_chat.LOWEST}


def sdk_of(kit: Kit) -> str:
    return "anthropic" if kit is ANTHROPIC else "openai"


def test_without_the_sdk_its_extra_is_named(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, sdk_of(kit), None)
    with pytest.raises(eventctx.InvalidSetting, match=rf"eventctx\[{sdk_of(kit)}\]"):
        kit.provider(None)


def test_an_sdk_that_is_too_old_is_named(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module(sdk_of(kit)), "__version__", "0.9.1")
    with pytest.raises(eventctx.InvalidSetting, match=r"0\.9\.1 is too old"):
        kit.provider(None)


def test_the_lowest_releases_are_those_of_the_extras() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    for name, lowest in LOWEST.items():
        assert project["optional-dependencies"][name] == [f"{name}>={lowest}"]


async def test_without_a_client_one_is_made_from_the_environment(
    kit: Kit, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = api.url if kit is ANTHROPIC else f"{api.url}/v1"
    monkeypatch.setenv(f"{sdk_of(kit).upper()}_BASE_URL", base)
    monkeypatch.setenv(f"{sdk_of(kit).upper()}_API_KEY", "from-the-environment")
    api.answers(kit.text)
    provider: Any = kit.provider(None)
    assert (await provider.complete(ASKED)).text == "Fair enough."
    headers = api.requests[0].headers
    keys = headers.get("x-api-key", ""), headers.get("authorization", "")
    assert "from-the-environment" in "".join(keys)
    await provider.aclose()


@pytest.mark.parametrize("thing", [3, "key", object()])
def test_what_is_no_client_is_refused(kit: Kit, thing: object) -> None:
    with pytest.raises(eventctx.InvalidSetting, match="Async"):
        kit.provider(thing)


def test_importing_the_providers_loads_no_sdk() -> None:
    program = (
        "import sys; from eventctx.orchestrators.providers import "
        "anthropic, openai_chat, openai_responses; "
        "print(*{'anthropic', 'openai'} & sys.modules.keys())"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert run.stdout.strip() == b""
