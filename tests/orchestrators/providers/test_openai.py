"""Chat completions' own ways, and those of servers that speak them nearly."""

from __future__ import annotations

from typing import Any

import pytest

from eventctx.orchestrators.protocol import Answer, Chunk, Ids, Request, ToolOutcome, ToolRequest
from tests.orchestrators.providers.conftest import Connect
from tests.orchestrators.providers.kits import (
    CHAT,
    CHAT_CALL,
    CHAT_END,
    CHAT_EVENTS,
    CHAT_TEXT,
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


async def test_system_messages_stay_where_they_stand(connect: Connect, server: Server) -> None:
    rows = [HELLO, {"role": "developer", "content": "Be brief."}, HELLO]
    server.replies = [json_reply(CHAT_TEXT)]
    await connect(CHAT).complete(asking(*rows))
    assert server.requests[0].body["messages"] == rows


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


async def test_a_server_of_its_own_has_a_name_of_its_own(connect: Connect) -> None:
    assert connect(CHAT, name="deepseek").name == "deepseek"


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


@pytest.mark.parametrize(
    ("written", "arguments", "problem"),
    [
        ("", {}, None),
        (None, {}, None),
        ({"a": 1}, {"a": 1}, None),
        ('{"a": ', {}, "no JSON"),
        ("[]", {}, "no JSON object"),
        (3, {}, "no JSON object"),
        ("x" * 1_000, {}, "no JSON"),
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


async def test_a_refusal_in_pieces_is_shown(connect: Connect, server: Server) -> None:
    events = [chat_part({"refusal": one}) for one in ("I will", " not.")]
    server.replies = [streamed([*events, *CHAT_END])]
    *chunks, answer = await heard(connect(CHAT))
    assert chunks == [Chunk("text", "I will", 0), Chunk("text", " not.", 0)]
    assert isinstance(answer, Answer)
    assert answer.message == {"role": "assistant", "content": None, "refusal": "I will not."}


async def test_lists_in_pieces_are_strung_together(connect: Connect, server: Server) -> None:
    events = [chat_part({"reasoning_details": [{"text": one}]}) for one in "ab"]
    other = chat_part({"content": "another choice"})
    other["choices"][0]["index"] = 1
    server.replies = [streamed([*events, other, *CHAT_END])]
    (answer,) = await heard(connect(CHAT))
    assert isinstance(answer, Answer)
    assert answer.message["reasoning_details"] == [{"text": "a"}, {"text": "b"}]
    assert answer.text == ""
