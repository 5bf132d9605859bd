"""The SDKs of Anthropic and OpenAI, wrapped, against a scripted server on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

anthropic = pytest.importorskip("anthropic", reason="an extra: eventctx[anthropic]")
openai = pytest.importorskip("openai", reason="an extra: eventctx[openai]")

import eventctx  # noqa: E402
import eventctx.sync  # noqa: E402
from eventctx.engine import Engine  # noqa: E402
from eventctx.errors import InvalidSetting  # noqa: E402
from tests.orchestrators.providers.server import streamed  # noqa: E402
from tests.scripted_apis import answering  # noqa: E402
from tests.scripted_http import serving  # noqa: E402

Body = dict[str, Any]

APIS = ["messages", "chat", "responses"]
PROMPT = "Compare a.py with b.py."
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS: dict[str, list[Body]] = {
    "messages": [{"name": "read", "input_schema": PARAMETERS}],
    "chat": [{"type": "function", "function": {"name": "read", "parameters": PARAMETERS}}],
    "responses": [{"type": "function", "name": "read", "parameters": PARAMETERS}],
}


@pytest.fixture(scope="module")
def server() -> Iterator[list[Body]]:
    """What the one server was asked, while the SDKs ask it."""
    found: list[Body] = []
    with pytest.MonkeyPatch.context() as patch, answering(found) as environment:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture
def received(server: list[Body]) -> list[Body]:
    """What the server was asked in this test."""
    server.clear()
    return server


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with eventctx.open("memory://") as opened:
        yield opened


def client_of(api: str, **more: Any) -> Any:
    kind: Any = anthropic.AsyncAnthropic if api == "messages" else openai.AsyncOpenAI
    # Without TLS: to read all known authorities takes longer than a test.
    sdk = anthropic if api == "messages" else openai
    http = sdk.DefaultAsyncHttpxClient(verify=False)
    return kind(**{"max_retries": 0, "http_client": http, **more})


def request_of(api: str, rows: list[Body], tools: bool = True, **more: Any) -> tuple[str, Body]:
    """The name of a method of the client, and its arguments."""
    given = {"model": "m-1", **({"tools": TOOLS[api]} if tools else {}), **more}
    if api == "messages":
        return "messages", {**given, "messages": rows, "system": "Be brief.", "max_tokens": 900}
    if api == "chat":
        return "chat.completions", {**given, "messages": rows}
    return "responses", {**given, "input": rows, "instructions": "Be brief.", "store": False}


def method(client: Any, name: str, verb: str = "create") -> Any:
    for part in name.split("."):
        client = getattr(client, part)
    return getattr(client, verb)


def added(api: str, answer: Any) -> list[Body]:
    """The rows with which a caller goes on: the answer, and the results of its calls."""
    if api == "messages":
        content = [block.model_dump(exclude_none=True) for block in answer.content]
        results = [
            {"type": "tool_result", "tool_use_id": one["id"], "content": f"text of {n}"}
            for n, one in enumerate(content)
            if one["type"] == "tool_use"
        ]
        rows: list[Body] = [{"role": "assistant", "content": content}]
        return [*rows, *([{"role": "user", "content": results}] if results else [])]
    if api == "chat":
        message = answer.choices[0].message
        calls = message.tool_calls or []
        said = message.model_dump(exclude_none=True) | {"content": message.content}
        texts = [{"role": "tool", "tool_call_id": one.id, "content": "text"} for one in calls]
        return [said, *texts]
    items = [one.model_dump(exclude_none=True) for one in answer.output]
    calls = [one["call_id"] for one in items if one["type"] == "function_call"]
    return [
        *items,
        *({"type": "function_call_output", "call_id": one, "output": "text"} for one in calls),
    ]


def answered(api: str, rows: list[Body]) -> bool:
    last = rows[-1]
    return last.get("role") == "assistant" and (api != "chat" or "tool_calls" not in last)


async def talk(client: Any, api: str, prompts: list[str]) -> list[Body]:
    """An agent's loop, as a caller of the SDK writes it."""
    rows: list[Body] = [{"role": "system", "content": "Be brief."}] if api == "chat" else []
    for prompt in prompts:
        rows.append({"role": "user", "content": prompt})
        while not answered(api, rows):
            name, given = request_of(api, rows)
            rows += added(api, await method(client, name)(**given))
    return rows


async def records_of(engine: Engine) -> list[Any]:
    await engine.close_session("s")  # deferred activity is written
    return [one async for one in engine.store.read("s")]


async def views_of(engine: Engine) -> list[Any]:
    positions = [
        one.position for one in await records_of(engine) if one.type == "context:request_prepared"
    ]
    return [await engine.request_view("s", position=at) for at in positions]


@pytest.mark.parametrize("api", APIS)
async def test_each_request_is_observed_as_the_server_received_it(
    engine: Engine, received: list[Body], api: str
) -> None:
    async with eventctx.wrap(client_of(api), engine, "s") as client:
        rows = await talk(client, api, [PROMPT, "And c.py?"])
    views = await views_of(engine)
    assert [view.known for view in views] == ["observed"] * len(received)
    assert [view.sent.body() for view in views] == received
    assert all(view.verified for view in views)
    context = await engine.session("s")
    assert [one.get("role") for one in await context.get_messages()] == [
        one.get("role") for one in rows
    ]


@pytest.mark.parametrize("api", APIS)
async def test_turns_calls_tools_and_usage_are_recorded(
    engine: Engine, received: list[Body], api: str
) -> None:
    async with eventctx.wrap(client_of(api), engine, "s") as client:
        await talk(client, api, [PROMPT])
    types = [one.type for one in await records_of(engine) if ":" in one.type]
    assert [one for one in types if not one.startswith("context:")] == [
        "session:start",
        "prompt:submit",
        "provider:request",
        "usage:reported",
        "provider:response",
        "tool:pre",
        "tool:pre",
        "tool:post",
        "tool:post",
        "provider:request",
        "usage:reported",
        "provider:response",
        "prompt:complete",
    ]
    request = (await engine.audit("s")).requests[0]
    assert request.reported == (220 if api == "messages" else 120)


@pytest.mark.parametrize("api", APIS)
async def test_a_stream_is_the_callers_as_before_and_its_answer_is_recorded(
    engine: Engine, received: list[Body], api: str
) -> None:
    name, given = request_of(api, [{"role": "user", "content": PROMPT}], stream=True)

    async def events_of(client: Any) -> list[str]:
        stream = await method(client, name)(**given)
        return [f"{type(one).__name__} {getattr(one, 'type', '')}" async for one in stream]

    async with client_of(api) as plain:
        before = await events_of(plain)
    async with eventctx.wrap(client_of(api), engine, "s") as client:
        assert await events_of(client) == before
    assert received[0] == received[1]
    types = [one.type for one in await records_of(engine)]
    assert "provider:error" not in types
    assert types.count("provider:response") == 1
    assert types.count("tool:pre") == 2
    rows = await (await engine.session("s")).get_messages()
    assert json.dumps(rows).count("a.py") == 2  # in the prompt, and in the call


@pytest.mark.parametrize("api", APIS)
async def test_with_compact_the_server_receives_the_verified_view(
    engine: Engine, received: list[Body], api: str
) -> None:
    wrapped = eventctx.wrap(
        client_of(api), engine, "s", compact=True, max_tokens=2_000, reserve_tokens=0
    )
    async with wrapped as client:
        words = "and say why, " * 100
        await talk(client, api, [f"Compare a{n}.py with b{n}.py, {words}" for n in range(6)])
    views = await views_of(engine)
    assert all(view.verified for view in views)
    field = "input" if api == "responses" else "messages"
    instructed = api != "chat"  # else the system prompt is a message of the caller's
    assert [view.messages[instructed:] for view in views] == [one[field] for one in received]
    types = [one.type for one in await records_of(engine)]
    assert "context:post_compact" in types
    assert len(received[-1][field]) < len(await (await engine.session("s")).get_messages()) - 1


async def test_a_message_that_stays_keeps_its_cache_mark(
    engine: Engine, received: list[Body]
) -> None:
    mark = {"type": "ephemeral"}

    def marked(text: str) -> Body:
        content = [{"type": "text", "text": text, "cache_control": mark}]
        return {"role": "user", "content": content}

    async with eventctx.wrap(client_of("messages"), engine, "s", compact=True) as client:
        for rows in (
            [marked("one")],
            [
                {"role": "user", "content": [{"type": "text", "text": "one"}]},
                {"role": "assistant", "content": "Done."},
                marked("two"),
            ],
        ):
            name, given = request_of("messages", rows, tools=False)
            await method(client, name)(**given)
    assert received[1]["messages"][2] == marked("two")
    assert "cache_control" not in json.dumps(received[1]["messages"][:2])
    types = [one.type for one in await records_of(engine)]
    assert "context:messages_set" not in types


def test_a_client_without_async_takes_a_synchronous_engine(received: list[Body]) -> None:
    with eventctx.sync.open("memory://") as engine:
        client = eventctx.wrap(anthropic.Anthropic(max_retries=0), engine, "s")
        name, given = request_of("messages", [{"role": "user", "content": PROMPT}])
        answer = method(client, name)(**given)
        rows = [{"role": "user", "content": PROMPT}, *added("messages", answer)]
        name, given = request_of("messages", rows)
        with method(client, name, "stream")(**given) as stream:
            assert stream.get_final_text() == "Both check a path; only one of them writes."
        requests = engine.audit("s").requests
        assert [(one.turn, one.iteration) for one in requests] == [(1, 1), (1, 2)]
        view = engine.request_view("s", turn=1)
        assert view.verified
        assert view.sent.body() == received[1]
        client.close()


async def test_an_error_of_the_api_reaches_the_caller_and_the_log(
    engine: Engine, received: list[Body]
) -> None:
    rows = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "no"}]}]
    name, given = request_of("messages", rows)
    raised = []
    async with client_of("messages") as plain, client_of("messages") as inner:
        for client in (plain, eventctx.wrap(inner, engine, "s")):
            with pytest.raises(anthropic.BadRequestError) as caught:
                await method(client, name)(**given)
            raised.append(str(caught.value))
    assert raised[0] == raised[1]
    failed = [one for one in await records_of(engine) if one.type == "provider:error"]
    assert b"invalid_request_error" in failed[0].payload


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_a_hook_of_the_callers_client_has_read_is_the_callers_as_before(
    engine: Engine, received: list[Body], stream: bool
) -> None:
    async def read(response: Any) -> None:
        await response.aread()

    inner = client_of("chat")
    inner._client.event_hooks = {"response": [read]}
    name, given = request_of("chat", [{"role": "user", "content": PROMPT}], tools=False)
    async with eventctx.wrap(inner, engine, "s") as client:
        if stream:
            chunks = [one async for one in await method(client, name)(**given, stream=True)]
            assert "Done." in str(chunks)
        else:
            answer = await method(client, name)(**given)
            assert answer.choices[0].message.content == "Done."
    rows = await (await engine.session("s")).get_messages()
    assert "Done." in json.dumps(rows)


async def test_a_fault_of_ours_costs_no_answer_and_is_counted(received: list[Body]) -> None:
    engine = await eventctx.open("memory://")
    client = eventctx.wrap(client_of("messages"), engine, "s")
    await engine.close()
    name, given = request_of("messages", [{"role": "user", "content": PROMPT}], tools=False)
    answer = await method(client, name)(**given)
    assert answer.content[0].text == "Done."
    assert engine.hooks.stats().errors == {"eventctx.adapters.clients.wrapping.wrap": 1}
    await client.close()


async def test_a_call_beside_another_is_passed_on_and_counted(
    engine: Engine, received: list[Body]
) -> None:
    name, given = request_of("messages", [{"role": "user", "content": PROMPT}], tools=False)
    async with eventctx.wrap(client_of("messages"), engine, "s") as client:
        answers = await asyncio.gather(*(method(client, name)(**given) for _ in range(2)))
    assert [one.content[0].text for one in answers] == ["Done.", "Done."]
    assert engine.hooks.stats().dropped == {"eventctx.adapters.clients.wrapping.wrap": 1}
    types = [one.type for one in await records_of(engine)]
    assert types.count("provider:response") == 1


def test_a_call_that_is_given_up_at_any_step_leaves_the_next_one_recorded() -> None:
    async def give_up_after(steps: int, client: Any) -> None:
        name, given = request_of("messages", [{"role": "user", "content": PROMPT}])
        call = asyncio.create_task(method(client, name)(**given))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    async def calls(engine: Any, url: str) -> None:
        async with client_of("messages", base_url=url, api_key="k") as inner:
            for steps in range(0, 40, 2):
                client = eventctx.wrap(inner, engine, f"s{steps}")
                await give_up_after(steps, client)
                await talk(client, "messages", [PROMPT])

    # On a server of its own: what was given up may still reach it in the next test.
    with answering() as environment, eventctx.sync.open("memory://") as engine:
        asyncio.run(calls(engine, environment["ANTHROPIC_BASE_URL"]))
        assert engine.hooks.stats().dropped == {}


async def test_a_stream_that_the_caller_leaves_in_the_middle_is_a_cancelled_call(
    engine: Engine, received: list[Body]
) -> None:
    name, given = request_of("messages", [{"role": "user", "content": PROMPT}], stream=True)
    begun = {"type": "message_start", "message": {"role": "assistant", "content": []}}
    with serving(lambda request: streamed([begun], "stalled")) as server:
        inner = client_of("messages", base_url=server.url)
        async with eventctx.wrap(inner, engine, "s") as client:
            stream = await method(client, name)(**given)
            async for _ in stream:
                break
            await stream.close()
    failed = [one for one in await records_of(engine) if one.type == "provider:error"]
    assert b'"status":"cancelled"' in failed[0].payload


@pytest.mark.parametrize("more", [0, 1])
async def test_a_call_that_goes_on_from_a_stream_that_was_left_open_is_recorded(
    engine: Engine, received: list[Body], more: int
) -> None:
    rows = [{"role": "user", "content": PROMPT}]
    begun = {"id": "c", "choices": [{"index": 0, "delta": {"content": "Both"}}]}
    with serving(lambda request: streamed([begun], "stalled")) as server:
        async with eventctx.wrap(client_of("chat"), engine, "s") as client:
            name, given = request_of("chat", rows, stream=True)
            async for _ in await method(client.with_options(base_url=server.url), name)(**given):
                break  # which closes no stream of OpenAI's
            name, given = request_of("chat", [*rows, *rows[:more]], tools=False)
            await method(client, name)(**given)
    types = [one.type for one in await records_of(engine)]
    assert [one for one in types if one.startswith("provider:")] == [
        *("provider:request", "provider:error", "provider:request", "provider:response")
    ]
    assert engine.hooks.stats().dropped == {}


async def test_an_attempt_after_one_that_failed_is_a_call_of_the_same_turn(
    engine: Engine, received: list[Body]
) -> None:
    name, given = request_of("messages", [{"role": "user", "content": PROMPT}], stream=True)
    with serving(lambda request: streamed([], "cut")) as server:
        inner = client_of("messages", base_url=server.url)
        async with eventctx.wrap(inner, engine, "s") as client:
            for _ in range(2):
                with pytest.raises(Exception):  # noqa: B017 - the SDK's or its library's
                    async for _ in await method(client, name)(**given):
                        pass
    types = [one.type for one in await records_of(engine)]
    assert types.count("prompt:submit") == 1
    assert types.count("provider:error") == 2


@pytest.mark.parametrize("client", [None, "client", object()])
async def test_what_is_no_client_is_refused(engine: Engine, client: Any) -> None:
    with pytest.raises(InvalidSetting, match="expected a client of the anthropic or openai SDK"):
        eventctx.wrap(client, engine, "s")


async def test_a_client_without_async_refuses_an_engine_of_async(
    engine: Engine, received: list[Body]
) -> None:
    with anthropic.Anthropic() as client, pytest.raises(InvalidSetting, match=r"eventctx\.sync"):
        eventctx.wrap(client, engine, "s")
