"""What is odd in an answer is the caller's as without the wrapper, and in the log as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

pytest.importorskip("anthropic", reason="an extra: eventctx[anthropic]")
pytest.importorskip("openai", reason="an extra: eventctx[openai]")


import eventctx
from eventctx import Engine
from eventctx.testing import AdapterContract
from tests.adapters.drivers.clients import ChatDriver, MessagesDriver, ResponsesDriver
from tests.adapters.test_pages import KNOWN
from tests.adapters.wrapped_apis import APIS, ROWS, scripted, seen_by
from tests.api_answers import Body, Said, response
from tests.orchestrators.providers.server import Reply, json_reply, streamed

HOOK = "eventctx.adapters.clients.wrapping.wrap"
BOOM: Body = {"type": "server_error", "message": "boom", "code": None}
HI: Body = {"role": "assistant", "content": "Hi"}


def chunk(*choices: Body, **more: Any) -> Body:
    kind = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}
    return {**kind, "choices": list(choices), **more}


def choice(delta: Body, finish: str | None = None, index: int = 0) -> Body:
    return {"index": index, "delta": delta, "finish_reason": finish}


def call(index: int, name: str) -> Body:
    function = {"name": name, "arguments": json.dumps({"of": name})}
    return {"index": index, "id": f"call_{name}", "type": "function", "function": function}


def chat_stream(*deltas: Body, finish: str = "stop") -> Reply:
    chunks = [chunk(choice(one)) for one in deltas]
    return streamed([*chunks, chunk(choice({}, finish)), "[DONE]"])


def completion(*choices: Body) -> Reply:
    kind = {"id": "c", "object": "chat.completion", "created": 1, "model": "m-1"}
    return json_reply({**kind, "choices": list(choices)})


def message_stream(finish: str, *blocks: Body, json_of_input: str = "") -> Reply:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m-1", "content": []}
    usage = {"input_tokens": 3, "output_tokens": 1}
    ends = {"stop_reason": finish, "stop_sequence": None}
    return streamed(
        [
            {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
            *(event for at, one in enumerate(blocks) for event in block(at, one, json_of_input)),
            {"type": "message_delta", "delta": ends, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ]
    )


def block(index: int, content: Body, json_of_input: str) -> Iterator[Body]:
    yield {"type": "content_block_start", "index": index, "content_block": content}
    if "input" in content:
        for part in ("", json_of_input):
            delta = {"type": "input_json_delta", "partial_json": part}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def before_its_end(reply: Reply, *events: Body) -> Reply:
    return Reply([*reply.pieces[:-1], *streamed(events).pieces], reply.status, reply.headers)


def response_stream(status: str, **more: Any) -> Reply:
    whole, events = response(1, "m-1", Said("Hi"))
    last = {"type": f"response.{status}", "sequence_number": 9}
    return streamed([*events[:-1], {**last, "response": {**whole, "status": status, **more}}])


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
TEXT = {"type": "text", "text": "Hi"}


class Case(NamedTuple):
    """An answer, and what the log has of it: texts of its row, its tools, its error."""

    api: str
    reply: Reply
    texts: tuple[str, ...] = ()
    tools: int = 0
    error: tuple[str, ...] = ()


CASES = {
    "several choices in a chunk": Case(
        "chat",
        streamed(
            [
                chunk(choice({"content": "Other"}, index=1), choice(HI)),
                chunk(choice({}, "stop", 1)),
                chunk(choice({}, "stop")),
                "[DONE]",
            ]
        ),
        ('"content": "Hi"',),
    ),
    "calls that all have one number": Case(
        "chat",
        chat_stream({"tool_calls": [call(0, "a"), call(0, "b")]}, finish="tool_calls"),
        ('{\\"of\\": \\"a\\"}"', '{\\"of\\": \\"b\\"}"'),
        2,
    ),
    "azure's first chunk": Case(
        "chat",
        streamed(
            [
                {**chunk(prompt_filter_results=[{"prompt_index": 0}]), "id": "", "model": ""},
                chunk(choice(HI)),
                chunk(choice({}, "stop")),
                "[DONE]",
            ]
        ),
        ('"content": "Hi"',),
    ),
    "a refusal": Case(
        "chat",
        chat_stream({"role": "assistant", "content": None, "refusal": "N"}, {"refusal": "o"}),
        ('"refusal": "No"',),
    ),
    "no choice": Case("chat", completion(), error=("the answer holds no message",)),
    "an error after text": Case(
        "chat",
        streamed([chunk(choice(HI)), {"error": BOOM}]),
        error=("server_error", "boom"),
    ),
    "a failed response": Case(
        "responses", response_stream("failed", output=[], error=BOOM), error=("boom",)
    ),
    "an error in a response": Case(
        "responses",
        before_its_end(
            response_stream("completed"),
            {"type": "error", "code": "oops", "message": "boom", "sequence_number": 9},
        ),
        error=("oops", "boom"),
    ),
    "a pause": Case(
        "messages",
        message_stream("pause_turn", SEARCH, json_of_input='{"query": "x"}'),
        ('"query": "x"',),
    ),
    "a server's tool": Case(
        "messages", message_stream("end_turn", SEARCH, FOUND, TEXT), ("srvtoolu_1", '"Hi"')
    ),
    "an error in a message": Case(
        "messages",
        before_its_end(
            message_stream("end_turn", TEXT),
            {"type": "error", "error": {"type": "overloaded_error", "message": "boom"}},
        ),
        error=("overloaded_error", "boom"),
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_an_odd_answer_is_in_the_log_as_it_was(engine: Engine, case: str) -> None:
    name, reply, texts, tools, error = CASES[case]
    api = APIS[name]
    way = "whole" if "json" in reply.headers["content-type"] else "iterated"
    with scripted(api, lambda *_: reply) as (script, server):
        plain = await seen_by(api.client(server.url), api, way, script, server)
        wrapped = eventctx.wrap(api.client(server.url), engine, "s")
        assert await seen_by(wrapped, api, way, script, server) == plain
    await engine.close_session("s")
    records = [one async for one in engine.records("s")]
    assert engine.hooks.stats().errors == {}
    ended = next(one for one in records if one.type in ("provider:response", "provider:error"))
    assert (ended.type == "provider:error") == bool(error)
    assert all(word.encode() in ended.payload for word in error)
    assert b"cancelled" not in ended.payload
    second = [one.position for one in records if one.type == "provider:request"][1]
    types = [one.type for one in records[:second]]
    assert types.count("tool:pre") == tools
    added = [one.position for one in records if one.type == "context:message_added"]
    said = await engine.transcript("s", at=added[1]) if texts else []
    assert all(text in json.dumps([one.message for one in said]) for text in texts)


async def test_an_answer_that_pauses_its_turn_does_not_end_it(engine: Engine) -> None:
    api, pause = APIS["messages"], CASES["a pause"].reply
    with scripted(api, lambda *_: pause) as (_, server):
        async with eventctx.wrap(api.client(server.url), engine, "s") as client:
            async with client.messages.stream(model="m-1", **api.given) as stream:
                content = (await stream.get_final_message()).to_dict()["content"]
            rows = [*ROWS, {"role": "assistant", "content": content}]
            await client.messages.create(model="next", **{**api.given, "messages": rows})
    await engine.close_session("s")
    types = [one.type async for one in engine.records("s")]
    assert types.count("prompt:submit") == types.count("prompt:complete") == 1
    assert types.count("provider:response") == 2
    assert "context:messages_set" not in types


@pytest.mark.parametrize("name", APIS)
async def test_a_request_that_outgrows_its_budget_is_sent_and_observed(
    engine: Engine, name: str
) -> None:
    api = APIS[name]
    long = [{"role": "user", "content": "Say why. " * 900}]
    given = {key: long if value is ROWS else value for key, value in api.given.items()}
    with scripted(api, lambda reply, _: reply) as (_, server):
        client = eventctx.wrap(
            api.client(server.url), engine, "s", compact=True, max_tokens=300, reserve_tokens=0
        )
        async with client:
            for _ in range(2):
                await api.methods(client).create(model="m-1", **given)
            await api.methods(client).create(model="m-1", **api.given)
    audit = await engine.audit("s")
    views = [await engine.request_view("s", turn=one.turn) for one in audit.requests]
    assert [one.known for one in views] == ["observed", "observed", "prepared"]
    assert [one.sent.body() for one in views[:2]] == server.received[:2]
    assert all(one.verified for one in views)
    types = [one.type async for one in engine.records("s")]
    assert types.count("provider:response") == 3
    assert engine.hooks.stats().errors == {HOOK: 2}


# -- the contract of adapters, API by API ----------------------------------------------------------


class TestAnthropicMessages(AdapterContract):
    driver = MessagesDriver
    knows = KNOWN["Clients of Anthropic's and OpenAI's SDKs"]
    trims = False  # the caller's list is the conversation
    untold = frozenset(("tools",))  # the caller runs them, and may tell the model


class TestOpenAIChat(AdapterContract):
    driver = ChatDriver
    knows = KNOWN["Clients of Anthropic's and OpenAI's SDKs"]
    trims = False
    untold = frozenset(("tools",))


class TestOpenAIResponses(AdapterContract):
    driver = ResponsesDriver
    knows = KNOWN["Clients of Anthropic's and OpenAI's SDKs"]
    trims = False
    untold = frozenset(("tools",))
