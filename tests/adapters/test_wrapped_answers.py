"""Odd answers are the caller's as without the wrapper, and in the log; requests are read once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("anthropic", reason="an extra: eventctx[anthropic]")
pytest.importorskip("openai", reason="an extra: eventctx[openai]")

import eventctx
from eventctx import Engine
from eventctx.adapters.clients.exchange import asked, provider_of, with_rows
from eventctx.log.turn_recorder import read_settings
from eventctx.testing import AdapterContract
from tests.adapters.drivers.base import KNOWN
from tests.adapters.drivers.clients import ChatDriver, MessagesDriver, ResponsesDriver
from tests.adapters.logs import count, records_of
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


def chat_stream(*deltas: Body, finish: str = "stop", first: Sequence[Body] = ()) -> Reply:
    chunks = [chunk(choice(one)) for one in deltas]
    return streamed([*first, *chunks, chunk(choice({}, finish)), "[DONE]"])


def message_stream(finish: str, *blocks: Body, json_of_input: str = "") -> Reply:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m-1", "content": []}
    usage = {"input_tokens": 3, "output_tokens": 1}
    ends = {"stop_reason": finish, "stop_sequence": None}
    begun = {**message, "stop_reason": None, "usage": usage}
    events: list[Body] = [{"type": "message_start", "message": begun}]
    for at, one in enumerate(blocks):
        events.append({"type": "content_block_start", "index": at, "content_block": one})
        for part in ("", json_of_input) if "input" in one else ():
            delta = {"type": "input_json_delta", "partial_json": part}
            events.append({"type": "content_block_delta", "index": at, "delta": delta})
        events.append({"type": "content_block_stop", "index": at})
    events.append({"type": "message_delta", "delta": ends, "usage": {"output_tokens": 2}})
    return streamed([*events, {"type": "message_stop"}])


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


NO_CHOICE = {"id": "c", "object": "chat.completion", "created": 1, "model": "m-1", "choices": []}
CHOICES = [chunk(choice({"content": "Other"}, index=1), choice(HI)), chunk(choice({}, "stop", 1))]
AZURE = {**chunk(prompt_filter_results=[{"prompt_index": 0}]), "id": "", "model": ""}
REFUSAL = [{"role": "assistant", "content": None, "refusal": "N"}, {"refusal": "o"}]
NUMBERED_ALIKE = chat_stream({"tool_calls": [call(0, "a"), call(0, "b")]}, finish="tool_calls")
OOPS = {"type": "error", "code": "oops", "message": "boom", "sequence_number": 9}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "boom"}}
PAUSE = message_stream("pause_turn", SEARCH, json_of_input='{"query": "x"}')
SEARCHED = message_stream("end_turn", SEARCH, FOUND, TEXT)

CASES = {
    "several choices in a chunk": Case("chat", chat_stream(first=CHOICES), ('"content": "Hi"',)),
    "calls that all have one number": Case(
        "chat", NUMBERED_ALIKE, ('{\\"of\\": \\"a\\"}"', '{\\"of\\": \\"b\\"}"'), 2
    ),
    "azure's first chunk": Case("chat", chat_stream(HI, first=[AZURE]), ('"content": "Hi"',)),
    "a refusal": Case("chat", chat_stream(*REFUSAL), ('"refusal": "No"',)),
    "no choice": Case("chat", json_reply(NO_CHOICE), error=("the answer holds no message",)),
    "an error after text": Case(
        "chat", streamed([chunk(choice(HI)), {"error": BOOM}]), error=("server_error", "boom")
    ),
    "a failed response": Case(
        "responses", response_stream("failed", output=[], error=BOOM), error=("boom",)
    ),
    "an error in a response": Case(
        "responses", before_its_end(response_stream("completed"), OOPS), error=("oops", "boom")
    ),
    "a pause": Case("messages", PAUSE, ('"query": "x"',)),
    "a server's tool": Case("messages", SEARCHED, ("srvtoolu_1", '"Hi"')),
    "an error in a message": Case(
        "messages",
        before_its_end(message_stream("end_turn", TEXT), OVERLOADED),
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
    records = await records_of(engine)
    assert engine.hooks.stats().errors == {}
    ended = next(one for one in records if one.type in ("provider:response", "provider:error"))
    assert (ended.type == "provider:error") == bool(error)
    assert all(word.encode() in ended.payload for word in error)
    assert b"cancelled" not in ended.payload
    second = [one.position for one in records if one.type == "provider:request"][1]
    assert [one.type for one in records[:second]].count("tool:pre") == tools
    added = [one.position for one in records if one.type == "context:message_added"]
    said = await engine.transcript("s", at=added[1]) if texts else []
    assert all(text in json.dumps([one.message for one in said]) for text in texts)


async def test_an_answer_that_pauses_its_turn_does_not_end_it(engine: Engine) -> None:
    api = APIS["messages"]
    with scripted(api, lambda *_: PAUSE) as (_, server):
        async with eventctx.wrap(api.client(server.url), engine, "s") as client:
            async with client.messages.stream(model="m-1", **api.given) as stream:
                content = (await stream.get_final_message()).to_dict()["content"]
            rows = [*ROWS, {"role": "assistant", "content": content}]
            await client.messages.create(model="next", **{**api.given, "messages": rows})
    await engine.close_session("s")
    assert await count(engine, "prompt:submit", "prompt:complete") == [1, 1]
    assert await count(engine, "provider:response", "context:messages_set") == [2, 0]


@pytest.mark.parametrize("name", APIS)
async def test_a_request_over_its_budget_is_sent_and_observed(engine: Engine, name: str) -> None:
    api = APIS[name]
    long = [{"role": "user", "content": "Say why. " * 900}]
    given = {key: long if value is ROWS else value for key, value in api.given.items()}
    with scripted(api, lambda reply, _: reply) as (_, server):
        small: Any = {"compact": True, "max_tokens": 300, "reserve_tokens": 0}
        async with eventctx.wrap(api.client(server.url), engine, "s", **small) as client:
            for _ in range(2):
                await api.methods(client).create(model="m-1", **given)
            await api.methods(client).create(model="m-1", **api.given)
    audit = await engine.audit("s")
    views = [await engine.request_view("s", turn=one.turn) for one in audit.requests]
    assert [one.known for one in views] == ["observed", "observed", "prepared"]
    assert [one.sent.body() for one in views[:2]] == server.received[:2]
    assert all(one.verified for one in views)
    assert await count(engine, "provider:response") == [3]
    assert engine.hooks.stats().errors == {HOOK: 2}


class OfAClient(AdapterContract):
    knows = KNOWN["Clients of Anthropic's and OpenAI's SDKs"]
    trims = False  # the caller's list is the conversation
    untold = frozenset(("tools",))  # the caller runs them, and may tell the model


class TestAnthropicMessages(OfAClient):
    driver = MessagesDriver


class TestOpenAIChat(OfAClient):
    driver = ChatDriver


class TestOpenAIResponses(OfAClient):
    driver = ResponsesDriver


# -- requests read from their bodies ---------------------------------------------------------------


PATH = "/v1/messages"
MARK = {"cache_control": {"type": "ephemeral"}}
TEXTS = st.builds(
    lambda text, mark: {"type": "text", "text": text, **(MARK if mark else {})},
    st.sampled_from(["a", "b", '"cache_control"']),
    st.booleans(),
)
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant"]),
        st.one_of(st.sampled_from(["a", "b"]), st.lists(TEXTS, max_size=2)),
    ),
    max_size=5,
)


def body(messages: Any, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


@given(MESSAGES, MESSAGES, st.integers(0, 5), st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_request_after_another_is_read_as_it_is_alone(
    first: list[Any], second: list[Any], kept: int, marked: bool
) -> None:
    before = asked(PATH, body(first))
    content = body([*first[:kept], *second], **(MARK if marked else {}))
    alone, after = asked(PATH, content), asked(PATH, content, before)
    assert alone and after and after.sent == alone.sent
    assert "ephemeral" not in json.dumps(alone.rows)
    paths = [one.path for one in alone.sent.cache_control]
    assert (() in paths) == marked
    for path in paths[marked:]:
        place: Any = json.loads(content)
        for key in path:
            place = place[key]
        assert place["cache_control"] == MARK["cache_control"]


def test_a_body_is_another_only_where_its_messages_are() -> None:
    marked = {"role": "user", "content": [{"type": "text", "text": "b", **MARK}]}
    rows = [{"role": "user", "content": "a"}, marked]
    content = body(rows, temperature=1.00e0, system="Be brief.")
    request = asked(PATH, content)
    assert request and with_rows(request, request.rows) is None
    sent = with_rows(request, request.rows[1:])
    assert sent and json.loads(sent) == {**json.loads(content), "messages": [marked]}


OTHERS = ['{"messages": 3}', '{"messages": [3]}', '{"messages": null}', "", "[]", "{}", '{"a": 1,']


@pytest.mark.parametrize("content", OTHERS)
def test_what_is_no_request_of_a_model_is_none(content: str) -> None:
    assert asked(PATH, content.encode()) is None


BEDROCK = "https://bedrock-runtime.us-east-1.amazonaws.com/model/claude/invoke"
VERTEX = "https://us-east5-aiplatform.googleapis.com/v1/models/claude:rawPredict"


@pytest.mark.parametrize(
    ("rule", "url", "provider"),
    [
        ("anthropic-messages-1", "https://api.anthropic.com/v1/messages", "anthropic"),
        ("openai-chat-1", "https://api.openai.com/v1/chat/completions", "openai"),
        ("openai-responses-1", "http://localhost:1234/v1/responses", "openai"),
        ("openai-chat-1", "https://api.x.ai/v1/chat/completions", "x_ai"),
        ("openai-chat-1", "https://netflix.ai/v1/chat/completions", "openai"),
        ("openai-chat-1", "https://me.openai.azure.com/v1/chat/completions", "azure.ai.openai"),
        ("anthropic-messages-1", BEDROCK, "aws.bedrock"),
        ("anthropic-messages-1", VERTEX, "gcp.vertex_ai"),
    ],
)
def test_the_provider_of_a_request_is_known_by_its_host_or_by_the_api_that_it_speaks(
    rule: str, url: str, provider: str
) -> None:
    assert provider_of(rule, url, read_settings(url=url).server) == provider


@pytest.mark.parametrize(
    ("url", "server", "port"),
    [
        ("https://me:secret@api.example.org/v1?key=secret", "api.example.org", 443),
        ("http://localhost:8080", "localhost", 8080),
        ("no address", None, None),
        ("https://[broken", None, None),
        (None, None, None),
    ],
)
def test_an_address_is_host_and_port(url: str | None, server: str | None, port: int | None) -> None:
    found = read_settings(url=url, stream="yes", max_tokens="many")
    assert found == (False, None, server, port, None)


def test_a_text_is_the_words_of_a_person() -> None:
    request = asked("/v1/responses", b'{"model": "m", "input": "Say \\"cache_control\\"."}')
    assert request and request.rows == [{"role": "user", "content": 'Say "cache_control".'}]
