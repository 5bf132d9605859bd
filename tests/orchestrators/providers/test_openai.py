"""Own ways of chat completions, of servers that nearly speak them, and of the Responses API."""

from __future__ import annotations

from typing import Any

import pytest

import eventctx
from eventctx import Context
from eventctx.orchestrators.protocol import Answer, Chunk, Ids, Request, ToolOutcome, ToolRequest
from tests.orchestrators.providers.conftest import Connect
from tests.orchestrators.providers.kits import (
    CHAT,
    CHAT_CALL,
    CHAT_END,
    CHAT_EVENTS,
    CHAT_TEXT,
    RESPONSE,
    RESPONSE_CALL,
    RESPONSE_EVENTS,
    RESPONSES,
    chat_part,
)
from tests.orchestrators.providers.server import Server, json_reply, streamed

HELLO = {"role": "user", "content": "hello"}


def asking(*rows: dict[str, Any]) -> Request:
    return Request(rows or (HELLO,), Ids("s"))


def answering(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    return {**CHAT_TEXT, "choices": [{"index": 0, "message": message, "finish_reason": finish}]}


async def heard(provider: Any) -> list[Chunk | Answer]:
    return [piece async for piece in provider.stream(asking())]


async def test_a_message_is_stored_as_it_can_be_sent_back(connect: Connect, server: Server) -> None:
    server.replies = [json_reply(CHAT_TEXT), json_reply(CHAT_CALL), json_reply(CHAT_TEXT)]
    provider = connect(CHAT)
    text, call = await provider.complete(asking()), await provider.complete(asking())
    assert text.message == {
        "role": "assistant",
        "content": "Fair enough.",
        "reasoning_content": "Is it fair?",
    }
    assert call.message["content"] is None
    assert "index" not in call.message["tool_calls"][0]
    result = provider.result_message(ToolOutcome(call.calls[0], "no file", is_error=True))
    assert result == {"role": "tool", "tool_call_id": "c1", "content": "no file"}
    rows = [HELLO, text.message, HELLO, call.message, result]
    await provider.complete(asking(*rows))
    assert server.requests[-1].body["messages"] == rows


async def test_usage_is_asked_for_with_a_stream_unless_a_server_refuses_that(
    connect: Connect, server: Server
) -> None:
    server.replies = [streamed(CHAT_EVENTS), streamed(CHAT_EVENTS)]
    await heard(connect(CHAT))
    await heard(connect(CHAT, stream_options=None))
    assert server.requests[0].body["stream_options"] == {"include_usage": True}
    assert "stream_options" not in server.requests[1].body


async def test_parallel_calls_that_come_in_pieces_are_put_together(
    connect: Connect, server: Server
) -> None:
    def part(index: int, text: str, **more: Any) -> Any:
        return chat_part(
            {"tool_calls": [{"index": index, "function": {"arguments": text}, **more}]}
        )

    def begin(index: int, name: str) -> Any:
        call = {"index": index, "id": f"c{index}", "type": "function"}
        return chat_part({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]})

    events = [
        chat_part({"role": "assistant", "content": None}),
        begin(0, "read"),
        begin(1, "list"),
        part(0, '{"path": '),
        part(1, "{}"),
        part(0, '"a.py"}', id="c0", extra_content={"google": {"thought_signature": "s+/="}}),
        chat_part({}, "tool_calls"),
        *CHAT_END[1:],
    ]
    server.replies = [streamed(events)]
    (answer,) = await heard(connect(CHAT))
    assert isinstance(answer, Answer)
    assert answer.calls == (
        ToolRequest("c0", "read", {"path": "a.py"}),
        ToolRequest("c1", "list", {}),
    )
    assert answer.message == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c0",
                "type": "function",
                "function": {"name": "read", "arguments": '{"path": "a.py"}'},
                "extra_content": {"google": {"thought_signature": "s+/="}},
            },
            {"id": "c1", "type": "function", "function": {"name": "list", "arguments": "{}"}},
        ],
    }
    assert answer.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("written", "arguments", "problem"),
    [
        ("", {}, None),
        ({"a": 1}, {"a": 1}, None),
        ('{"a": ', {}, "no JSON"),
        ("[]", {}, "no JSON object"),
    ],
)
async def test_arguments_are_what_can_be_made_of_the_models_text(
    connect: Connect, server: Server, written: Any, arguments: Any, problem: str | None
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": written}}
    server.replies = [json_reply(answering({"role": "assistant", "tool_calls": [call]}))]
    (found,) = (await connect(CHAT).complete(asking())).calls
    assert found.arguments == arguments
    if problem is None:
        assert found.error is None
    else:
        assert problem in (found.error or "") and len(found.error or "") < 400


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None, "refusal": "I will not."}, "I will not."),
        (
            {"content": [{"type": "text", "text": "In "}, {"type": "text", "text": "parts."}]},
            "In parts.",
        ),
        ({"content": None}, ""),
    ],
)
async def test_the_text_is_what_a_person_is_shown(
    connect: Connect, server: Server, message: dict[str, Any], text: str
) -> None:
    server.replies = [json_reply(answering(message))]
    assert (await connect(CHAT).complete(asking())).text == text


async def test_an_answer_without_words_does_not_spoil_the_next_request(
    connect: Connect, server: Server
) -> None:
    server.replies = [
        json_reply(answering({"content": "", "tool_calls": []})),
        json_reply(CHAT_TEXT),
    ]
    provider = connect(CHAT)
    empty = await provider.complete(asking())
    assert empty.message == {"role": "assistant", "content": ""}
    await provider.complete(asking(HELLO, empty.message, {**HELLO, "metadata": {"source": "x"}}))
    assert server.requests[1].body["messages"] == [HELLO, HELLO]


# -- the Responses API: items, and nothing kept at the server --------------------------------------


def asking_items(*items: dict[str, Any]) -> Request:
    return Request(items or (HELLO,), Ids("s"))


async def test_nothing_is_kept_at_the_server(connect: Connect, server: Server) -> None:
    server.replies = [json_reply(RESPONSE)] * 3
    await connect(RESPONSES, max_output_tokens=500).complete(asking_items())
    await connect(RESPONSES, encrypted_reasoning=False).complete(asking_items())
    await connect(RESPONSES, include=["file_search_call.results"]).complete(asking_items())
    bodies = [one.body for one in server.requests]
    assert [body["store"] for body in bodies] == [False] * 3
    assert bodies[0]["include"] == ["reasoning.encrypted_content"]
    assert bodies[0]["max_output_tokens"] == 500
    assert "include" not in bodies[1] and "max_output_tokens" not in bodies[1]
    assert bodies[2]["include"] == ["file_search_call.results", "reasoning.encrypted_content"]


async def test_items_go_back_as_they_came(ctx: Context, connect: Connect, server: Server) -> None:
    server.replies = [json_reply(RESPONSE_CALL), json_reply(RESPONSE)]
    provider = connect(RESPONSES)
    await ctx.add_message({"role": "developer", "content": "Be brief."})
    await ctx.add_message(HELLO)
    answer = await provider.complete(asking_items(*await ctx.get_messages_for_request()))
    assert [item["type"] for item in (answer.message, *answer.more)] == [
        "reasoning",
        "function_call",
    ]
    for item in (answer.message, *answer.more):
        await ctx.add_message(item)
    await ctx.add_message(provider.result_message(ToolOutcome(answer.calls[0], "done")))
    await provider.complete(asking_items(*await ctx.get_messages_for_request()))
    reasoning, call = RESPONSE_CALL["output"]
    assert server.requests[1].body["input"] == [
        {"role": "developer", "content": "Be brief."},
        HELLO,
        {key: value for key, value in reasoning.items() if key != "status"},
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ]


@pytest.mark.parametrize(
    ("written", "problem"), [('{"path": "a', "no JSON"), ("[1]", "no JSON object")]
)
async def test_arguments_that_cannot_be_used_say_why(
    connect: Connect, server: Server, written: str, problem: str
) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": written}
    server.replies = [json_reply({**RESPONSE, "output": [call]})]
    answer = await connect(RESPONSES).complete(asking_items())
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
    whole = await provider.complete(asking_items())
    *_, last = [piece async for piece in provider.stream(asking_items())]
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
    cut = await provider.complete(asking_items())
    assert cut.message["type"] == "reasoning"
    await provider.complete(asking_items(HELLO, cut.message, HELLO))
    assert server.requests[-1].body["input"] == [HELLO, HELLO]


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled", None])
async def test_a_response_that_is_not_done_is_a_failed_call(
    connect: Connect, server: Server, status: str | None
) -> None:
    server.replies = [json_reply({**RESPONSE, "status": status})]
    with pytest.raises(eventctx.ProviderFailed, match="completed"):
        await connect(RESPONSES).complete(asking_items())


async def test_whole_calls_without_a_place_are_kept_apart(connect: Connect, server: Server) -> None:
    calls = [
        {"id": one, "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for one in ("c1", "c2")
    ]
    events = [chat_part({"tool_calls": [one]}) for one in calls]
    server.replies = [streamed([*events, chat_part({}, "stop"), "[DONE]"])]
    (answer,) = await heard(connect(CHAT))
    assert isinstance(answer, Answer)
    assert [call.id for call in answer.calls] == ["c1", "c2"]
    assert answer.usage is None


async def test_a_refusal_in_pieces_is_shown(connect: Connect, server: Server) -> None:
    events = [chat_part({"refusal": one}) for one in ("I will", " not.")]
    server.replies = [streamed([*events, *CHAT_END])]
    *chunks, answer = await heard(connect(CHAT))
    assert chunks == [Chunk("text", "I will", 0), Chunk("text", " not.", 0)]
    assert isinstance(answer, Answer)
    assert answer.message == {"role": "assistant", "content": None, "refusal": "I will not."}
