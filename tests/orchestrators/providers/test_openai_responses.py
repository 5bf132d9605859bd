"""The Responses API's own ways: items, and nothing kept at the server."""

from __future__ import annotations

from typing import Any

import pytest

import eventctx
from eventctx.orchestrators.protocol import Answer, Ids, Request, ToolOutcome, ToolRequest
from tests.orchestrators.providers.conftest import Connect
from tests.orchestrators.providers.kits import RESPONSE, RESPONSE_CALL, RESPONSE_EVENTS, RESPONSES
from tests.orchestrators.providers.server import Server, json_reply, streamed

HELLO = {"role": "user", "content": "hello"}


def asking(*items: dict[str, Any]) -> Request:
    return Request(items or (HELLO,), Ids("s"))


async def test_nothing_is_kept_at_the_server(connect: Connect, server: Server) -> None:
    server.replies = [json_reply(RESPONSE)] * 3
    await connect(RESPONSES, max_output_tokens=500).complete(asking())
    await connect(RESPONSES, encrypted_reasoning=False).complete(asking())
    await connect(RESPONSES, include=["file_search_call.results"]).complete(asking())
    bodies = [one.body for one in server.requests]
    assert [body["store"] for body in bodies] == [False] * 3
    assert bodies[0]["include"] == ["reasoning.encrypted_content"]
    assert bodies[0]["max_output_tokens"] == 500
    assert "include" not in bodies[1] and "max_output_tokens" not in bodies[1]
    assert bodies[2]["include"] == ["file_search_call.results", "reasoning.encrypted_content"]


async def test_items_go_back_as_they_came(connect: Connect, server: Server) -> None:
    server.replies = [json_reply(RESPONSE_CALL), json_reply(RESPONSE)]
    provider = connect(RESPONSES)
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.add_message({"role": "developer", "content": "Be brief."})
        await ctx.add_message(HELLO)
        answer = await provider.complete(asking(*await ctx.get_messages_for_request()))
        assert [item["type"] for item in (answer.message, *answer.more)] == [
            "reasoning",
            "function_call",
        ]
        for item in (answer.message, *answer.more):
            await ctx.add_message(item)
        await ctx.add_message(provider.result_message(ToolOutcome(answer.calls[0], "done")))
        await provider.complete(asking(*await ctx.get_messages_for_request()))
    reasoning, call = RESPONSE_CALL["output"]
    assert server.requests[1].body["input"] == [
        {"role": "developer", "content": "Be brief."},
        HELLO,
        {key: value for key, value in reasoning.items() if key != "status"},
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ]


async def test_functions_are_not_strict(connect: Connect) -> None:
    from eventctx.orchestrators.protocol import ToolDefinition

    (definition,) = connect(RESPONSES).definitions([ToolDefinition("read", "Reads.", {})])
    assert definition == {
        "type": "function",
        "name": "read",
        "description": "Reads.",
        "parameters": {},
        "strict": False,
    }


@pytest.mark.parametrize(
    ("written", "problem"), [('{"path": "a', "no JSON"), ("[1]", "no JSON object")]
)
async def test_arguments_that_cannot_be_used_say_why(
    connect: Connect, server: Server, written: str, problem: str
) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": written}
    server.replies = [json_reply({**RESPONSE, "output": [call]})]
    answer = await connect(RESPONSES).complete(asking())
    assert answer.calls[0] == ToolRequest("c1", "read", {}, answer.calls[0].error)
    assert problem in (answer.calls[0].error or "")
    assert answer.message == call


async def test_a_response_that_is_cut_short_says_so(connect: Connect, server: Server) -> None:
    short = {
        **RESPONSE,
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
    }
    ended = {"type": "response.incomplete", "response": short}
    server.replies = [json_reply(short), streamed([*RESPONSE_EVENTS[:-1], ended])]
    provider = connect(RESPONSES)
    whole = await provider.complete(asking())
    *_, last = [piece async for piece in provider.stream(asking())]
    assert whole.finish_reason == "max_output_tokens" and last == whole


async def test_reasoning_that_reached_its_limit_does_not_spoil_the_next_request(
    connect: Connect, server: Server
) -> None:
    thought = RESPONSE_CALL["output"][0]
    ended = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    server.replies = [
        json_reply({**RESPONSE_CALL, **ended, "output": [thought]}),
        json_reply(RESPONSE),
    ]
    provider = connect(RESPONSES)
    cut = await provider.complete(asking())
    assert cut.message["type"] == "reasoning"
    await provider.complete(asking(HELLO, cut.message, HELLO))
    assert server.requests[-1].body["input"] == [HELLO, HELLO]


async def test_a_refusal_is_the_text(connect: Connect, server: Server) -> None:
    refused = {**RESPONSE["output"][1], "content": [{"type": "refusal", "refusal": "No."}]}
    server.replies = [json_reply({**RESPONSE, "output": [refused]})]
    assert (await connect(RESPONSES).complete(asking())).text == "No."


async def test_an_answer_without_items_does_not_spoil_the_next_request(
    connect: Connect, server: Server
) -> None:
    server.replies = [json_reply({**RESPONSE, "output": []}), json_reply(RESPONSE)]
    provider = connect(RESPONSES)
    empty = await provider.complete(asking())
    assert isinstance(empty, Answer) and empty.text == "" and empty.more == ()
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        for row in (HELLO, empty.message, {**HELLO, "metadata": {"source": "hook"}}):
            await ctx.add_message(row)
        await provider.complete(asking(*await ctx.get_messages_for_request()))
    assert server.requests[1].body["input"] == [HELLO, HELLO]


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled", None])
async def test_a_response_that_is_not_done_is_a_failed_call(
    connect: Connect, server: Server, status: str | None
) -> None:
    server.replies = [json_reply({**RESPONSE, "status": status})]
    with pytest.raises(eventctx.ProviderFailed, match="completed"):
        await connect(RESPONSES).complete(asking())
