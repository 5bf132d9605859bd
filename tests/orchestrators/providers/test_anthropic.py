"""The Messages API's own ways: system, results, thinking, and inputs in pieces."""

from __future__ import annotations

from typing import Any

import pytest

from eventctx import Context
from eventctx.orchestrators import EventsOrchestrator, StreamingOrchestrator
from eventctx.orchestrators.protocol import Answer, Ids, Request, ToolOutcome, ToolRequest
from eventctx.testing import Reply, ServerCall
from eventctx.testing.strict_provider import strict_provider
from tests.orchestrators.agents import go
from tests.orchestrators.providers.conftest import Api
from tests.orchestrators.providers.kits import ANTHROPIC, CLAUDE_CALL, CLAUDE_EVENTS, CLAUDE_TEXT

HELLO = {"role": "user", "content": "hello"}


def asking(*rows: dict[str, Any]) -> Request:
    return Request(rows, Ids("s"))


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


async def last(provider: Any) -> Answer:
    *_, answer = [piece async for piece in provider.stream(asking(HELLO))]
    assert isinstance(answer, Answer)
    return answer


async def sent(api: Api, provider: Any, *rows: dict[str, Any]) -> dict[str, Any]:
    api.answers(CLAUDE_TEXT)
    await provider.complete(asking(*rows))
    return api.bodies[-1]


async def test_system_messages_are_lifted_from_wherever_they_stand(api: Api) -> None:
    provider = api.connect(ANTHROPIC)
    alone = await sent(api, provider, {"role": "system", "content": "Be brief."}, HELLO)
    assert alone["system"] == "Be brief." and alone["messages"] == [HELLO]
    cached = {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}
    several = await sent(
        api,
        api.connect(ANTHROPIC, system="From the program."),
        {"role": "system", "content": [cached]},
        HELLO,
        {"role": "developer", "content": "Late."},
        {"role": "system", "content": ""},
    )
    first, late = [{"type": "text", "text": text} for text in ("From the program.", "Late.")]
    assert several["system"] == [first, cached, late]
    assert several["messages"] == [HELLO]
    assert "system" not in await sent(api, provider, HELLO)


async def test_the_results_of_parallel_calls_go_in_one_message(api: Api) -> None:
    provider = api.connect(ANTHROPIC)
    calls = [{"type": "tool_use", "id": one, "name": "read", "input": {}} for one in "ab"]
    fine = provider.result_message(ToolOutcome(ToolRequest("a", "read", {}), "fine"))
    failed = provider.result_message(ToolOutcome(ToolRequest("b", "read", {}), "no file", True))
    assert failed["content"][0]["is_error"] is True
    assert "is_error" not in fine["content"][0]
    well = {"role": "user", "content": "Well?"}
    body = await sent(api, provider, HELLO, assistant(*calls), fine, failed, well)
    assert body["messages"][2:] == [
        {"role": "user", "content": [*fine["content"], *failed["content"]]},
        well,
    ]
    assert len(fine["content"]) == 1, "the caller's rows stay as they are"


async def test_thinking_goes_back_byte_for_byte(api: Api) -> None:
    provider = api.connect(ANTHROPIC, CLAUDE_EVENTS)
    answer = await last(provider)
    sealed = {"type": "redacted_thinking", "data": "EvgF+/=="}
    body = await sent(api, provider, HELLO, assistant(sealed, *answer.message["content"]), HELLO)
    assert body["messages"][1]["content"] == [
        sealed,
        {"type": "thinking", "thinking": "Is it fair?", "signature": "sig+/=="},
        {"type": "text", "text": "Fair enough."},
    ]


async def test_an_answer_without_words_does_not_spoil_the_next_request(api: Api) -> None:
    provider = api.connect(ANTHROPIC, {**CLAUDE_TEXT, "content": []})
    empty = await provider.complete(asking(HELLO))
    assert (empty.message, empty.text) == (assistant(), "")
    blank = {"type": "text", "text": "\n"}
    call = assistant(blank, *CLAUDE_CALL["content"])
    result = provider.result_message(ToolOutcome(ToolRequest("c1", "read", {}), ""))
    spoken = {"role": "assistant", "content": " "}
    body = await sent(api, provider, HELLO, empty.message, HELLO, spoken, HELLO, call, result)
    assert [row["role"] for row in body["messages"]] == ["user"] * 3 + ["assistant", "user"]
    assert body["messages"][3]["content"] == CLAUDE_CALL["content"]


async def test_thinking_that_reached_its_limit_does_not_spoil_the_next_request(api: Api) -> None:
    thought = CLAUDE_TEXT["content"][0]
    limited = {**CLAUDE_TEXT, "content": [thought], "stop_reason": "max_tokens"}
    provider = api.connect(ANTHROPIC, limited)
    cut = await provider.complete(asking(HELLO))
    assert cut.message["content"] == [thought]
    again = {"role": "user", "content": "Go on."}
    assert (await sent(api, provider, HELLO, cut.message, again))["messages"] == [HELLO, again]
    said_first = {"type": "text", "text": "First"}
    wordy = assistant(said_first, thought, {"type": "text", "text": ""})
    body = await sent(api, provider, HELLO, wordy, again)
    assert body["messages"][1]["content"] == [said_first]


def delta(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def streaming(block: dict[str, Any], *deltas: dict[str, Any]) -> list[Any]:
    """The events of an answer of one block that comes in these pieces."""
    return [
        CLAUDE_EVENTS[0],
        {"type": "content_block_start", "index": 0, "content_block": block},
        *deltas,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
        {"type": "message_stop"},
    ]


def pieces(*parts: str) -> list[Any]:
    """A streamed call whose input comes in these pieces."""
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {}}
    deltas = [delta(0, type="input_json_delta", partial_json=part) for part in parts]
    return streaming(call, *deltas)


@pytest.mark.parametrize(
    ("parts", "given"),
    [
        (["", '{"path": "a', '.py", "deep": [1, {"n": null}]}'], True),
        ([], False),
        ([""], False),
    ],
)
async def test_an_input_that_comes_in_pieces_is_put_together(
    api: Api, parts: list[str], given: bool
) -> None:
    answer = await last(api.connect(ANTHROPIC, pieces(*parts)))
    read = {"path": "a.py", "deep": [1, {"n": None}]} if given else {}
    assert answer.calls == (ToolRequest("c1", "read", read),)
    (block,) = answer.message["content"]
    assert block == {"type": "tool_use", "id": "c1", "name": "read", "input": read}
    assert answer.finish_reason == "tool_use"


@pytest.mark.parametrize(
    ("part", "problem"),
    [('{"path": "a', "no JSON"), ("[1]", "no JSON object"), ('"a"', "no JSON object")],
)
async def test_an_input_that_cannot_be_used_says_why_and_can_be_sent_back(
    api: Api, part: str, problem: str
) -> None:
    provider = api.connect(ANTHROPIC, pieces(part))
    answer = await last(provider)
    (call,) = answer.calls
    assert call.arguments == {} and call.error is not None
    assert problem in call.error and part in call.error
    result = provider.result_message(ToolOutcome(call, call.error, True))
    body = await sent(api, provider, HELLO, answer.message, result)
    assert body["messages"][1]["content"][0]["input"] == {}


async def test_citations_and_unknown_deltas_are_kept(api: Api) -> None:
    text = {"type": "text", "text": "So.", "citations": None}
    cited = [{"type": "char_location", "cited_text": one, "file_id": None} for one in "ab"]
    deltas = [delta(0, type="citations_delta", citation=one) for one in cited]
    deltas += [delta(0, type="x_delta", x=one) for one in ("1", "2")]
    answer = await last(api.connect(ANTHROPIC, streaming(text, *deltas)))
    assert answer.message["content"] == [{**text, "citations": cited, "x": "12"}]
    assert answer.text == "So."


@pytest.mark.parametrize("loop", [EventsOrchestrator, StreamingOrchestrator])
async def test_an_answer_that_paused_goes_on_in_the_same_turn(ctx: Context, loop: Any) -> None:
    search = ServerCall("web_search", {"query": "x"}, None, "srvtoolu_1")
    found = ServerCall("web_search", None, [], "srvtoolu_1")
    script = [Reply(server_calls=[search], thinking="hm"), Reply("Found.", server_calls=[found])]
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    async with strict_provider(script) as server, ANTHROPIC.connect(server.url) as client:
        response = await go(ctx, ANTHROPIC.provider(client, tools=tools), loop=loop)
        assert (response.text, response.finish, response.iterations) == ("Found.", "answered", 2)
        assert (server.refusals, len(server.requests)) == ([], 2)
