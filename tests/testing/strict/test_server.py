"""The strict server, as the clients of the real APIs see it."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import openai
import pytest

from eventctx.errors import ProviderFailed
from eventctx.orchestrators.protocol import Usage
from eventctx.testing import Reply, ServerCall
from eventctx.testing.strict_provider import ApiRequest, strict_provider
from eventctx.testing.strict_provider.claude_thinking import BINDING_BETA
from eventctx.testing.strict_provider.server import StrictServer
from tests.orchestrators.providers.server import claude_client, openai_client
from tests.testing.strict.claude_cases import PRESERVED

ASKED: dict[str, Any] = {"role": "user", "content": "Read x and y."}
READS = Reply("I read both.", calls=[("read", {"path": "x"}), ("read", {"path": "y"})])
THINKS = Reply("", calls=[("read", {"path": "x"})], thinking="First of all x.")
ADAPTIVE: Any = {"type": "adaptive"}
ON_DEMAND = {"anthropic-beta": "compact-2026-09-04"}
ENABLED: Any = {"type": "enabled", "budget_tokens": 2_000}


def claude(server: StrictServer) -> anthropic.AsyncAnthropic:
    return claude_client(server.url, max_retries=0)  # type: ignore[no-any-return]


def gpt(server: StrictServer) -> openai.AsyncOpenAI:
    return openai_client(f"{server.url}/v1", max_retries=0)  # type: ignore[no-any-return]


async def ask_claude(client: anthropic.AsyncAnthropic, streamed: bool, **fields: Any) -> Any:
    asked = {"model": PRESERVED, "max_tokens": 4_000, **fields}
    if not streamed:
        return await client.messages.create(**asked)
    async with client.messages.stream(**asked) as stream:
        return await stream.get_final_message()


def results_of(message: Any) -> dict[str, Any]:
    blocks = [block for block in message.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": b.id, "content": "text"} for b in blocks]
    return {"role": "user", "content": results}


def sent_back(message: Any) -> dict[str, Any]:
    content = [block.model_dump(exclude_unset=True) for block in message.content]
    return {"role": "assistant", "content": content}


ways = pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])


@ways
async def test_claude_s_client_goes_through_a_tool_loop_with_thinking(streamed):
    async with strict_provider([THINKS, READS, "Done."]) as server, claude(server) as client:
        messages = [ASKED]
        for _ in range(2):
            answer = await ask_claude(client, streamed, messages=messages, thinking=ADAPTIVE)
            assert answer.stop_reason == "tool_use"
            messages += [sent_back(answer), results_of(answer)]
        done = await ask_claude(client, streamed, messages=messages, thinking=ADAPTIVE)
    assert [block.type for block in done.content] == ["text"]
    assert (done.content[0].text, done.stop_reason) == ("Done.", "end_turn")
    assert [block["type"] for block in messages[1]["content"]] == ["thinking", "tool_use"]
    assert messages[1]["content"][0]["thinking"] == "First of all x."
    assert (server.refusals, server.remaining, len(server.requests)) == ([], 0, 3)
    assert 10 < done.usage.input_tokens < 400
    assert server.requests[-1].body["messages"] == messages


@ways
async def test_a_changed_prefix_is_refused_or_dropped_as_the_request_asks(streamed):
    async with strict_provider([THINKS, "Done."]) as server, claude(server) as client:
        first = await ask_claude(client, streamed, messages=[ASKED], thinking=ADAPTIVE)
        later = [{**ASKED, "content": "Read x."}, sent_back(first), results_of(first)]
        with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
            await ask_claude(client, streamed, messages=later, thinking=ADAPTIVE)
        binding: Any = {**ADAPTIVE, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
        with pytest.raises(anthropic.BadRequestError, match="Extra inputs are not permitted"):
            await ask_claude(client, streamed, messages=later, thinking=binding)
        asks: Any = {"model": PRESERVED, "max_tokens": 4_000, "messages": later}
        asks |= {"thinking": binding, "betas": [BINDING_BETA]}
        told = await client.beta.messages.create(**asks)
    refused = [one.rule for refusal in server.refusals for one in refusal]
    assert refused == ["anthropic/thinking-bound", "anthropic/binding-needs-beta"]
    (dropped,) = told.input_transformations or ()
    assert (dropped.path, dropped.type) == ("messages.1.content.0", "thinking_dropped")
    assert dropped.reason == "prefix_binding_mismatch"


async def test_kept_thinking_stays_valid_after_the_api_s_own_compaction():
    compacts = Reply("They read x.", finish_reason="compaction")
    async with strict_provider([compacts, THINKS, "Done."]) as server, claude(server) as client:
        old = [ASKED, {"role": "assistant", "content": "I did."}, ASKED]
        swapped = await ask_claude(client, False, messages=old)
        assert swapped.stop_reason == "compaction"
        # The conversation goes on with all of it while the summary is written.
        first = await ask_claude(client, False, messages=old, thinking=ADAPTIVE)
        kept = [sent_back(first), results_of(first)]
        summary = sent_back(swapped)
        fields: Any = {"thinking": ADAPTIVE, "extra_headers": ON_DEMAND}
        await ask_claude(client, False, messages=[summary, *kept], **fields)
        other = {**summary, "content": [{"type": "text", "text": "They read x."}]}
        for rows, more in (
            ([ASKED, other, *kept], {}),
            ([summary, ASKED, *kept], {}),
            ([summary, *kept], {"system": "x"}),
        ):
            with pytest.raises(anthropic.BadRequestError, match="bound to a different"):
                await ask_claude(client, False, messages=rows, **fields, **more)


@ways
async def test_a_compaction_that_is_asked_for_is_all_of_the_answer(streamed):
    rows: Any = [ASKED, {"role": "assistant", "content": "I did."}]
    asked: Any = {"model": PRESERVED, "max_tokens": 900, "compaction": {"type": "summarize"}}
    script = [Reply("They read x."), "Done."]
    async with strict_provider(script) as server, claude(server) as client:
        beta = client.beta.messages
        with pytest.raises(anthropic.BadRequestError, match="compaction: Extra inputs"):
            await beta.create(messages=rows, **asked)
        asked["betas"] = ["compact-2026-09-04"]
        if streamed:
            async with beta.stream(messages=rows, **asked) as stream:
                made = await stream.get_final_message()
        else:
            made = await beta.create(messages=rows, **asked)
        types = [one.type for one in made.content]
        assert (made.stop_reason, types) == ("compaction", ["compaction"])
        del asked["compaction"]
        later: Any = [{"role": "assistant", "content": [made.content[0].to_dict()]}, ASKED]
        await beta.create(messages=later, **asked)
        assert server.remaining == 0


async def test_a_conversation_is_compacted_by_openai_s_endpoint_and_goes_on():
    asked: Any = [ASKED, {"role": "assistant", "content": "I did."}]
    script = [Reply("They read x."), Reply("Done.", compaction="They read y.")]
    async with strict_provider(script) as server, gpt(server) as client:
        made = await client.responses.compact(model="gpt-6-sol", input=asked)
        assert [one.type for one in made.output] == ["message", "compaction"]
        window = [one.to_dict(warnings=False) for one in made.output]
        answer = await client.responses.create(model="gpt-6-sol", input=[*window, ASKED])  # type: ignore[list-item]
        assert [one.type for one in answer.output] == ["compaction", "message"]
        assert server.remaining == 0


async def test_an_altered_thought_and_a_lost_one_are_refused_with_the_provider_s_words():
    async with strict_provider([THINKS]) as server, claude(server) as client:
        asks: Any = {"model": "claude-haiku-4-5", "thinking": ENABLED}
        first = await ask_claude(client, False, messages=[ASKED], **asks)
        altered, lost = sent_back(first), sent_back(first)
        altered["content"][0]["thinking"] = "Second."
        del lost["content"][0]
        for row, words in ((altered, "cannot be modified"), (lost, "but found `tool_use`")):
            with pytest.raises(anthropic.BadRequestError, match=words) as refused:
                await ask_claude(client, False, messages=[ASKED, row, results_of(first)], **asks)
            assert refused.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]


@ways
async def test_a_server_tool_pauses_and_goes_on_in_the_next_answer(streamed):
    page = {"title": "x", "url": "https://a.b", "encrypted_content": "c"}
    found = [{"type": "web_search_result", **page}]
    paused = Reply("", server_calls=[ServerCall("web_search", {"query": "x"})])
    rest = Reply("Found.", server_calls=[ServerCall("web_search", None, found, "srvtoolu_1")])
    async with strict_provider([paused, rest, "Bye."]) as server, claude(server) as client:
        first = await ask_claude(client, streamed, messages=[ASKED])
        assert first.stop_reason == "pause_turn"
        rows = [ASKED, sent_back(first)]
        second = await ask_claude(client, streamed, messages=rows)
        assert [block.type for block in second.content] == ["web_search_tool_result", "text"]
        again = {"role": "user", "content": "And y?"}
        with pytest.raises(anthropic.BadRequestError, match="without a corresponding"):
            await ask_claude(client, streamed, messages=[*rows, again])
        await ask_claude(client, streamed, messages=[*rows, sent_back(second), again])
    assert server.remaining == 0


async def test_tokens_are_counted_without_a_step_and_refused_like_a_request():
    async with strict_provider([]) as server, claude(server) as client:
        count = client.messages.count_tokens
        assert 5 < (await count(model=PRESERVED, messages=[ASKED])).input_tokens < 60  # type: ignore[list-item]
        with pytest.raises(anthropic.BadRequestError, match="at least one message is required"):
            await count(model=PRESERVED, messages=[])
        async with httpx.AsyncClient() as other:
            assert (await other.post(f"{server.url}/v2/messages", json={})).status_code == 404


@ways
async def test_openai_s_chat_client_calls_tools_and_is_refused_a_missing_result(streamed):
    async def ask(messages: list[Any]) -> Any:
        if not streamed:
            answer = await client.chat.completions.create(model="gpt-5.4", messages=messages)
            return answer.choices[0].message
        async with client.chat.completions.stream(model="gpt-5.4", messages=messages) as stream:
            return (await stream.get_final_completion()).choices[0].message

    async with strict_provider([READS, "Done."]) as server, gpt(server) as client:
        first = await ask([ASKED])
        assert [call.function.name for call in first.tool_calls] == ["read", "read"]
        assert json.loads(first.tool_calls[1].function.arguments) == {"path": "y"}
        calls = [call.model_dump(include={"id", "type", "function"}) for call in first.tool_calls]
        for call in calls:
            call["function"].pop("parsed_arguments", None)
        asked = {"role": "assistant", "content": first.content, "tool_calls": calls}
        done = [{"role": "tool", "tool_call_id": one["id"], "content": "x"} for one in calls]
        with pytest.raises(openai.BadRequestError, match="did not have response messages: call_2"):
            await ask([ASKED, asked, done[0]])
        assert (await ask([ASKED, asked, *done])).content == "Done."


@ways
async def test_openai_s_responses_keep_reasoning_with_what_it_was_made_for(streamed):
    async def ask(items: list[Any]) -> Any:
        asked: Any = {"model": "gpt-5.4", "input": items, "store": False}
        asked["include"] = ["reasoning.encrypted_content"]
        if not streamed:
            return await client.responses.create(**asked)
        async with client.responses.stream(**asked) as stream:
            return await stream.get_final_response()

    script = [THINKS, Reply("Done.", server_calls=[ServerCall("web_search", {"query": "x"})])]
    async with strict_provider(script) as server, gpt(server) as client:
        first = await ask([ASKED])
        items = [item.model_dump(exclude_unset=True, exclude_none=True) for item in first.output]
        items[1].pop("parsed_arguments", None)
        assert [item["type"] for item in items] == ["reasoning", "function_call"]
        done = {"type": "function_call_output", "call_id": items[1]["call_id"], "output": "x"}
        with pytest.raises(openai.BadRequestError, match="without its required 'reasoning' item"):
            await ask([ASKED, items[1], done])
        with pytest.raises(openai.BadRequestError, match="without its required following item"):
            await ask([ASKED, items[0]])
        last = await ask([ASKED, *items, done])
    assert last.output_text == "Done."
    assert [item.type for item in last.output] == ["web_search_call", "message"]
    assert last.usage.input_tokens > first.usage.input_tokens


async def test_gemini_answers_in_chunks_and_wants_its_signature_back():
    path = "/v1beta/models/gemini-3-pro:generateContent"
    asked = {"role": "user", "parts": [{"text": "Read x."}]}
    async with strict_provider([THINKS, "Done."]) as server, httpx.AsyncClient() as client:
        first = (await client.post(server.url + path, json={"contents": [asked]})).json()
        said = first["candidates"][0]["content"]
        assert said["parts"][0] == {"text": "First of all x.", "thought": True}
        done = {"functionResponse": {"id": "call_1", "name": "read", "response": {"output": "x"}}}
        rest = {"contents": [asked, said, {"role": "user", "parts": [done]}]}
        stream = path.replace(":generate", ":streamGenerate") + "?alt=sse"
        chunks = (await client.post(server.url + stream, json=rest)).text.strip().split("\n\n")
        last = json.loads(chunks[-1].removeprefix("data: "))
        assert last["candidates"][0]["finishReason"] == "STOP"
        del said["parts"][1]["thoughtSignature"]
        refused = await client.post(server.url + path, json=rest)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    assert "`default_api:read` , position 2" in error["message"]


async def test_bedrock_answers_in_frames_and_refuses_neighbours_of_one_role():
    path = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse"
    asked = {"role": "user", "content": [{"text": "Read x."}]}
    async with strict_provider([THINKS, THINKS]) as server, httpx.AsyncClient() as client:
        whole = (await client.post(server.url + path, json={"messages": [asked]})).json()
        streamed = await client.post(f"{server.url}{path}-stream", json={"messages": [asked]})
        refused = await client.post(server.url + path, json={"messages": [asked, asked]})
    assert server.requests[0].model == "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    blocks = whole["output"]["message"]["content"]
    assert blocks[1]["toolUse"] == {"toolUseId": "call_1", "name": "read", "input": {"path": "x"}}
    assert b":event-type\x07\x00\x0cmessageStart" in streamed.content
    assert streamed.content.count(b":event-type") == 9
    assert refused.headers["x-amzn-errortype"] == "ValidationException"
    assert refused.json()["message"].startswith("A conversation must alternate")


async def test_an_error_of_the_script_has_its_status_and_a_function_may_answer_all_requests():
    busy = ProviderFailed("anthropic", "Overloaded", status=529, retryable=True)
    async with strict_provider([busy, "Done."]) as server, claude(server) as client:
        with pytest.raises(anthropic.APIStatusError, match="Overloaded") as failed:
            await ask_claude(client, False, messages=[ASKED])
        assert failed.value.status_code == 529
        await ask_claude(client, False, messages=[ASKED])

    def echo(asked: ApiRequest) -> Reply:
        return Reply(f"{asked.api} {asked.number}", usage=Usage(100, 7, cache_read=60))

    async with strict_provider(echo) as server, claude(server) as client, gpt(server) as other:
        texts = [await ask_claude(client, False, messages=[ASKED]) for _ in range(2)]
        chat = await other.chat.completions.create(model="m", messages=[ASKED])  # type: ignore[list-item]
    assert [one.content[0].text for one in texts] == ["anthropic 1", "anthropic 2"]
    assert chat.choices[0].message.content == "openai-chat 3"
    used = texts[0].usage
    assert (used.input_tokens, used.cache_read_input_tokens, used.output_tokens) == (40, 60, 7)
