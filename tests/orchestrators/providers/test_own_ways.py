"""Own ways of each API: of Messages, of chat completions and who nearly speaks them, Responses."""

from __future__ import annotations

from typing import Any

import pytest

import eventctx
from eventctx import Context
from eventctx.orchestrators import EventsOrchestrator, StreamingOrchestrator
from eventctx.orchestrators.protocol import Answer, Chunk, Ids, Request, ToolOutcome, ToolRequest
from eventctx.testing import Reply, ServerCall
from eventctx.testing.strict_provider import strict_provider
from tests.orchestrators.agents import go
from tests.orchestrators.providers.conftest import Api
from tests.orchestrators.providers.kits import (
    ANTHROPIC,
    CHAT,
    CHAT_CALL,
    CHAT_END,
    CHAT_EVENTS,
    CHAT_TEXT,
    CLAUDE_CALL,
    CLAUDE_EVENTS,
    CLAUDE_TEXT,
    RESPONSE,
    RESPONSE_CALL,
    RESPONSE_EVENTS,
    RESPONSES,
    Kit,
    chat_part,
)

HELLO = {"role": "user", "content": "hello"}


def asking(*rows: dict[str, Any]) -> Request:
    return Request(rows or (HELLO,), Ids("s"))


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


async def heard(provider: Any) -> list[Chunk | Answer]:
    return [piece async for piece in provider.stream(asking())]


async def last(provider: Any) -> Answer:
    *_, answer = await heard(provider)
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
async def test_an_input_in_pieces_is_put_together(api: Api, parts: list[str], given: bool) -> None:
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
async def test_an_unusable_input_says_why_and_can_be_sent_back(
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


# -- chat completions ------------------------------------------------------------------------------


def answering(**message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {**CHAT_TEXT, "choices": [choice]}


async def test_a_message_is_stored_as_it_can_be_sent_back(api: Api) -> None:
    provider = api.connect(CHAT, CHAT_TEXT, CHAT_CALL, CHAT_TEXT)
    text, call = await provider.complete(asking()), await provider.complete(asking())
    said = {"content": "Fair enough.", "reasoning_content": "Is it fair?"}
    assert text.message == {"role": "assistant", **said}
    assert call.message["content"] is None
    assert "index" not in call.message["tool_calls"][0]
    result = provider.result_message(ToolOutcome(call.calls[0], "no file", is_error=True))
    assert result == {"role": "tool", "tool_call_id": "c1", "content": "no file"}
    rows = [HELLO, text.message, HELLO, call.message, result]
    await provider.complete(asking(*rows))
    assert api.bodies[-1]["messages"] == rows


async def test_usage_is_asked_for_with_a_stream_unless_a_server_refuses_that(api: Api) -> None:
    await heard(api.connect(CHAT, CHAT_EVENTS))
    await heard(api.connect(CHAT, CHAT_EVENTS, stream_options=None))
    assert api.bodies[0]["stream_options"] == {"include_usage": True}
    assert "stream_options" not in api.bodies[1]


def named(call_id: str, name: str, arguments: str, **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function, **more}


async def test_parallel_calls_that_come_in_pieces_are_put_together(api: Api) -> None:
    def part(index: int, text: str, **more: Any) -> Any:
        call = {"index": index, "function": {"arguments": text}, **more}
        return chat_part({"tool_calls": [call]})

    def begin(index: int, name: str) -> Any:
        return chat_part({"tool_calls": [{"index": index, **named(f"c{index}", name, "")}]})

    signed = {"extra_content": {"google": {"thought_signature": "s+/="}}}
    events = [
        chat_part({"role": "assistant", "content": None}),
        begin(0, "read"),
        begin(1, "list"),
        part(0, '{"path": '),
        part(1, "{}"),
        part(0, '"a.py"}', id="c0", **signed),
        chat_part({}, "tool_calls"),
        *CHAT_END[1:],
    ]
    (answer,) = await heard(api.connect(CHAT, events))
    assert isinstance(answer, Answer)
    read, listed = ToolRequest("c0", "read", {"path": "a.py"}), ToolRequest("c1", "list", {})
    assert answer.calls == (read, listed)
    rows = [named("c0", "read", '{"path": "a.py"}', **signed), named("c1", "list", "{}")]
    assert answer.message == {"role": "assistant", "content": None, "tool_calls": rows}
    assert answer.finish_reason == "tool_calls"


async def test_whole_calls_without_a_place_are_kept_apart(api: Api) -> None:
    events = [chat_part({"tool_calls": [named(one, "read", "{}")]}) for one in ("c1", "c2")]
    (answer,) = await heard(api.connect(CHAT, [*events, chat_part({}, "stop"), "[DONE]"]))
    assert isinstance(answer, Answer)
    assert [call.id for call in answer.calls] == ["c1", "c2"]
    assert answer.usage is None


@pytest.mark.parametrize("kit", [CHAT, RESPONSES], ids=["chat", "responses"])
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
    api: Api, kit: Kit, written: Any, arguments: Any, problem: str | None
) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": written}
    body = {**RESPONSE, "output": [call]}
    if kit is CHAT:
        body = answering(role="assistant", tool_calls=[named("c1", "read", written)])
    answer = await api.connect(kit, body).complete(asking())
    (found,) = answer.calls
    assert (found.id, found.name, found.arguments) == ("c1", "read", arguments)
    assert (found.error is None) == (problem is None)
    assert (problem or "") in (found.error or "") and len(found.error or "") < 400
    assert kit is CHAT or answer.message == call


IN_PARTS = [{"type": "text", "text": "In "}, {"type": "text", "text": "parts."}]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None, "refusal": "I will not."}, "I will not."),
        ({"content": IN_PARTS}, "In parts."),
        ({"content": None}, ""),
    ],
)
async def test_the_text_is_what_is_shown(api: Api, message: dict[str, Any], text: str) -> None:
    assert (await api.connect(CHAT, answering(**message)).complete(asking())).text == text


async def test_a_refusal_in_pieces_is_shown(api: Api) -> None:
    events = [chat_part({"refusal": one}) for one in ("I will", " not.")]
    *chunks, answer = await heard(api.connect(CHAT, [*events, *CHAT_END]))
    assert chunks == [Chunk("text", "I will", 0), Chunk("text", " not.", 0)]
    assert isinstance(answer, Answer)
    assert answer.message == {"role": "assistant", "content": None, "refusal": "I will not."}


async def test_a_message_without_words_does_not_spoil_the_next_request(api: Api) -> None:
    provider = api.connect(CHAT, answering(content="", tool_calls=[]), CHAT_TEXT)
    empty = await provider.complete(asking())
    assert empty.message == {"role": "assistant", "content": ""}
    await provider.complete(asking(HELLO, empty.message, {**HELLO, "metadata": {"source": "x"}}))
    assert api.bodies[1]["messages"] == [HELLO, HELLO]


# -- the Responses API: items, and nothing kept at the server --------------------------------------


async def test_nothing_is_kept_at_the_server(api: Api) -> None:
    api.answers(RESPONSE, RESPONSE, RESPONSE)
    await api.connect(RESPONSES, max_output_tokens=500).complete(asking())
    await api.connect(RESPONSES, encrypted_reasoning=False).complete(asking())
    await api.connect(RESPONSES, include=["file_search_call.results"]).complete(asking())
    first, second, third = api.bodies
    assert [body["store"] for body in api.bodies] == [False] * 3
    assert first["include"] == ["reasoning.encrypted_content"]
    assert first["max_output_tokens"] == 500
    assert "include" not in second and "max_output_tokens" not in second
    assert third["include"] == ["file_search_call.results", "reasoning.encrypted_content"]


async def test_items_go_back_as_they_came(ctx: Context, api: Api) -> None:
    provider = api.connect(RESPONSES, RESPONSE_CALL, RESPONSE)
    brief = {"role": "developer", "content": "Be brief."}
    await ctx.add_messages([brief, HELLO])
    answer = await provider.complete(asking(*await ctx.get_messages_for_request()))
    items = [answer.message, *answer.more]
    assert [item["type"] for item in items] == ["reasoning", "function_call"]
    result = provider.result_message(ToolOutcome(answer.calls[0], "done"))
    await ctx.add_messages([*items, result])
    await provider.complete(asking(*await ctx.get_messages_for_request()))
    reasoning, call = RESPONSE_CALL["output"]
    assert api.bodies[1]["input"] == [
        brief,
        HELLO,
        {key: value for key, value in reasoning.items() if key != "status"},
        call,
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ]


CUT_SHORT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


async def test_a_response_that_is_cut_short_says_so(api: Api) -> None:
    short = {**RESPONSE, **CUT_SHORT}
    ended = {"type": "response.incomplete", "response": short}
    provider = api.connect(RESPONSES, short, [*RESPONSE_EVENTS[:-1], ended])
    whole = await provider.complete(asking())
    assert whole.finish_reason == "max_output_tokens" and (await heard(provider))[-1] == whole


async def test_reasoning_that_reached_its_limit_does_not_spoil_the_next_request(api: Api) -> None:
    thought = RESPONSE_CALL["output"][0]
    provider = api.connect(RESPONSES, {**RESPONSE_CALL, **CUT_SHORT, "output": [thought]}, RESPONSE)
    cut = await provider.complete(asking())
    assert cut.message["type"] == "reasoning"
    await provider.complete(asking(HELLO, cut.message, HELLO))
    assert api.bodies[-1]["input"] == [HELLO, HELLO]


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled", None])
async def test_a_response_that_is_not_done_is_a_failed_call(api: Api, status: str | None) -> None:
    with pytest.raises(eventctx.ProviderFailed, match="completed"):
        await api.connect(RESPONSES, {**RESPONSE, "status": status}).complete(asking())
