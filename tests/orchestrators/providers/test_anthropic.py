"""The Messages API's own ways: system, results, thinking, and inputs in pieces."""

from __future__ import annotations

from typing import Any

import pytest

import eventctx
from eventctx.orchestrators import EventsOrchestrator, StreamingOrchestrator
from eventctx.orchestrators.protocol import Answer, Ids, Request, ToolOutcome, ToolRequest
from eventctx.testing import Reply, ServerCall
from eventctx.testing.strict_provider import strict_provider
from tests.orchestrators.providers.conftest import Connect
from tests.orchestrators.providers.kits import ANTHROPIC, CLAUDE_CALL, CLAUDE_EVENTS, CLAUDE_TEXT
from tests.orchestrators.providers.server import Event, Server, json_reply, streamed

HELLO = {"role": "user", "content": "hello"}


def asking(*rows: dict[str, Any]) -> Request:
    return Request(rows, Ids("s"))


async def last(provider: Any, request: Request) -> Answer:
    *_, answer = [piece async for piece in provider.stream(request)]
    assert isinstance(answer, Answer)
    return answer


async def sent(server: Server, provider: Any, *rows: dict[str, Any]) -> dict[str, Any]:
    server.replies = [json_reply(CLAUDE_TEXT)]
    await provider.complete(asking(*rows))
    return server.requests[-1].body


async def test_system_messages_are_lifted_from_wherever_they_stand(
    connect: Connect, server: Server
) -> None:
    provider = connect(ANTHROPIC)
    alone = await sent(server, provider, {"role": "system", "content": "Be brief."}, HELLO)
    assert alone["system"] == "Be brief." and alone["messages"] == [HELLO]
    cached = {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}
    several = await sent(
        server,
        connect(ANTHROPIC, system="From the program."),
        {"role": "system", "content": [cached]},
        HELLO,
        {"role": "developer", "content": "Late."},
        {"role": "system", "content": ""},
    )
    assert several["system"] == [
        {"type": "text", "text": "From the program."},
        cached,
        {"type": "text", "text": "Late."},
    ]
    assert several["messages"] == [HELLO]
    assert "system" not in await sent(server, provider, HELLO)


async def test_the_results_of_parallel_calls_go_in_one_message(
    connect: Connect, server: Server
) -> None:
    provider = connect(ANTHROPIC)
    calls = [{"type": "tool_use", "id": one, "name": "read", "input": {}} for one in "ab"]
    results = [
        provider.result_message(ToolOutcome(ToolRequest("a", "read", {}), "fine")),
        provider.result_message(ToolOutcome(ToolRequest("b", "read", {}), "no file", True)),
    ]
    assert results[1]["content"][0]["is_error"] is True
    assert "is_error" not in results[0]["content"][0]
    rows = [HELLO, {"role": "assistant", "content": calls}, *results]
    body = await sent(server, provider, *rows, {"role": "user", "content": "Well?"})
    assert body["messages"][2:] == [
        {"role": "user", "content": [*results[0]["content"], *results[1]["content"]]},
        {"role": "user", "content": "Well?"},
    ]
    assert len(rows[2]["content"]) == 1, "the caller's rows stay as they are"


async def test_thinking_goes_back_byte_for_byte(connect: Connect, server: Server) -> None:
    provider = connect(ANTHROPIC)
    server.replies = [streamed(CLAUDE_EVENTS), json_reply(CLAUDE_TEXT)]
    answer = await last(provider, asking(HELLO))
    sealed = {"type": "redacted_thinking", "data": "EvgF+/=="}
    rows = [HELLO, {"role": "assistant", "content": [sealed, *answer.message["content"]]}, HELLO]
    await provider.complete(asking(*rows))
    assert server.requests[-1].body["messages"][1]["content"] == [
        sealed,
        {"type": "thinking", "thinking": "Is it fair?", "signature": "sig+/=="},
        {"type": "text", "text": "Fair enough."},
    ]


async def test_an_answer_without_words_does_not_spoil_the_next_request(
    connect: Connect, server: Server
) -> None:
    provider = connect(ANTHROPIC)
    server.replies = [json_reply({**CLAUDE_TEXT, "content": []})]
    empty = await provider.complete(asking(HELLO))
    assert (empty.message, empty.text) == ({"role": "assistant", "content": []}, "")
    blank = {"type": "text", "text": "\n"}
    body = await sent(
        server,
        provider,
        HELLO,
        empty.message,
        HELLO,
        {"role": "assistant", "content": " "},
        HELLO,
        {"role": "assistant", "content": [blank, *CLAUDE_CALL["content"]]},
        provider.result_message(ToolOutcome(ToolRequest("c1", "read", {}), "")),
    )
    assert [row["role"] for row in body["messages"]] == ["user"] * 3 + ["assistant", "user"]
    assert body["messages"][3]["content"] == CLAUDE_CALL["content"]


async def test_thinking_that_reached_its_limit_does_not_spoil_the_next_request(
    connect: Connect, server: Server
) -> None:
    thought = CLAUDE_TEXT["content"][0]
    provider = connect(ANTHROPIC)
    server.replies = [
        json_reply({**CLAUDE_TEXT, "content": [thought], "stop_reason": "max_tokens"})
    ]
    cut = await provider.complete(asking(HELLO))
    assert cut.message["content"] == [thought]
    again = {"role": "user", "content": "Go on."}
    assert (await sent(server, provider, HELLO, cut.message, again))["messages"] == [HELLO, again]
    said_first = {"type": "text", "text": "First"}
    wordy = {"role": "assistant", "content": [said_first, thought, {"type": "text", "text": ""}]}
    body = await sent(server, provider, HELLO, wordy, again)
    assert body["messages"][1]["content"] == [said_first]


def pieces(*parts: str, block: dict[str, Any] | None = None) -> list[Event | str]:
    """A streamed call whose input comes in these pieces."""
    started = block or {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
    deltas = [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": part},
        }
        for part in parts
    ]
    return [
        CLAUDE_EVENTS[0],
        {"type": "content_block_start", "index": 0, "content_block": started},
        *deltas,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
        {"type": "message_stop"},
    ]


async def test_an_input_that_comes_in_pieces_is_put_together(
    connect: Connect, server: Server
) -> None:
    server.replies = [streamed(pieces("", '{"path": "a', '.py", "deep": [1, {"n": null}]}'))]
    answer = await last(connect(ANTHROPIC), asking(HELLO))
    given = {"path": "a.py", "deep": [1, {"n": None}]}
    assert answer.calls == (ToolRequest("c1", "read", given),)
    assert answer.message["content"] == [
        {"type": "tool_use", "id": "c1", "name": "read", "input": given}
    ]
    assert answer.finish_reason == "tool_use"


@pytest.mark.parametrize(
    ("part", "problem"),
    [('{"path": "a', "no JSON"), ("[1]", "no JSON object"), ('"a"', "no JSON object")],
)
async def test_an_input_that_cannot_be_used_says_why_and_can_be_sent_back(
    connect: Connect, server: Server, part: str, problem: str
) -> None:
    server.replies = [streamed(pieces(part))]
    provider = connect(ANTHROPIC)
    answer = await last(provider, asking(HELLO))
    (call,) = answer.calls
    assert call.arguments == {} and call.error is not None
    assert problem in call.error and part in call.error
    result = provider.result_message(ToolOutcome(call, call.error, True))
    body = await sent(server, provider, HELLO, answer.message, result)
    assert body["messages"][1]["content"][0]["input"] == {}


async def test_citations_and_unknown_deltas_are_kept(connect: Connect, server: Server) -> None:
    cited = [{"type": "char_location", "cited_text": one, "file_id": None} for one in "ab"]
    events = pieces(block={"type": "text", "text": "So.", "citations": None})
    events[2:2] = [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "citations_delta", "citation": one},
        }
        for one in cited
    ] + [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "x_delta", "x": one}}
        for one in ("1", "2")
    ]
    server.replies = [streamed(events)]
    answer = await last(connect(ANTHROPIC), asking(HELLO))
    assert answer.message["content"] == [
        {"type": "text", "text": "So.", "citations": cited, "x": "12"}
    ]
    assert answer.text == "So."


@pytest.mark.parametrize("loop", [EventsOrchestrator, StreamingOrchestrator])
async def test_an_answer_that_paused_goes_on_in_the_same_turn(loop: Any) -> None:
    search = ServerCall("web_search", {"query": "x"}, None, "srvtoolu_1")
    found = ServerCall("web_search", None, [], "srvtoolu_1")
    script = [Reply(server_calls=[search], thinking="hm"), Reply("Found.", server_calls=[found])]
    async with (
        strict_provider(script) as server,
        ANTHROPIC.connect(server.url) as client,
        eventctx.open() as engine,
    ):
        tools = [{"type": "web_search_20250305", "name": "web_search"}]
        provider = ANTHROPIC.provider(client, tools=tools)
        ctx = await engine.session("s")
        response = await loop().execute("Look it up.", ctx, {"p": provider})
        assert (response.text, response.finish, response.iterations) == ("Found.", "answered", 2)
        assert server.refusals == []
        assert len(server.requests) == 2


@pytest.mark.parametrize("parts", [(), ("",)])
async def test_a_call_without_arguments_has_none(
    connect: Connect, server: Server, parts: tuple[str, ...]
) -> None:
    server.replies = [streamed(pieces(*parts))]
    answer = await last(connect(ANTHROPIC), asking(HELLO))
    assert answer.calls == (ToolRequest("c1", "read", {}),)
