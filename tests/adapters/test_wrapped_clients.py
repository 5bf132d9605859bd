"""The SDKs of Anthropic and OpenAI, wrapped: hosts, copies, states, left streams, faults."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

anthropic = pytest.importorskip("anthropic", reason="an extra: eventctx[anthropic]")
openai = pytest.importorskip("openai", reason="an extra: eventctx[openai]")

from pydantic import BaseModel  # noqa: E402

import eventctx  # noqa: E402
from eventctx.adapters.clients.exchange import answered  # noqa: E402
from eventctx.engine import Engine  # noqa: E402
from eventctx.errors import InvalidSetting  # noqa: E402
from tests.api_answers import Body, Said, claude, response  # noqa: E402
from tests.orchestrators.providers.server import (  # noqa: E402
    ReceivedRequest,
    Reply,
    claude_client,
    http,
    json_reply,
    openai_client,
    streamed,
)
from tests.scripted_http import ScriptedHTTP, saying, serving  # noqa: E402

ROWS: list[Body] = [{"role": "user", "content": "Compare a.py with b.py."}]
CLAUDE: Body = {"model": "m-1", "max_tokens": 900, "messages": ROWS}
CHAT: Body = {"model": "m-1", "messages": ROWS}
RESPONSE: Body = {"model": "m-1", "input": ROWS}
HOOK = "eventctx.adapters.clients.wrapping.wrap"


class Verdict(BaseModel):
    same: bool


@pytest.fixture
def server() -> Iterator[ScriptedHTTP]:
    with serving(saying()) as started:
        yield started


def claude_of(server: ScriptedHTTP, **more: Any) -> Any:
    return claude_client(server.url, **{"max_retries": 0, **more})


def gpt_of(server: ScriptedHTTP, **more: Any) -> Any:
    return openai_client(server.url, **{"max_retries": 0, **more})


def azure_client(server: ScriptedHTTP) -> Any:
    where = {"azure_endpoint": server.url, "api_version": "2026-01-01"}
    return openai.AsyncAzureOpenAI(api_key="k", http_client=http(openai), **where)


def foundry_client(server: ScriptedHTTP) -> Any:
    return anthropic.AsyncAnthropicFoundry(
        api_key="k", base_url=f"{server.url}/anthropic", http_client=http(anthropic)
    )


def vertex_client(server: ScriptedHTTP) -> Any:
    where = {"region": "europe-west6", "project_id": "p", "access_token": "t"}
    return anthropic.AsyncAnthropicVertex(
        base_url=f"{server.url}/v1", http_client=http(anthropic), **where
    )


def bedrock_client(server: ScriptedHTTP) -> Any:
    return anthropic.AsyncAnthropicBedrock(
        aws_region="eu-central-2", api_key="k", base_url=server.url, http_client=http(anthropic)
    )


async def types_of(engine: Engine) -> list[str]:
    await engine.close_session("s")  # deferred activity is written
    return [one.type async for one in engine.records("s")]


CALLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Awaitable[Any]]]] = {
    "azure": (azure_client, lambda client: client.chat.completions.create(**CHAT)),
    "foundry": (foundry_client, lambda client: client.messages.create(**CLAUDE)),
    "vertex": (vertex_client, lambda client: client.messages.create(**CLAUDE)),
    "bedrock": (bedrock_client, lambda client: client.messages.create(**CLAUDE)),
    "with_options": (
        claude_of,
        lambda client: client.with_options(timeout=3).messages.create(**CLAUDE),
    ),
    "parsed": (
        claude_of,
        lambda client: client.beta.messages.parse(**CLAUDE, output_format=Verdict),
    ),
    "response parsed": (
        gpt_of,
        lambda client: client.responses.parse(**RESPONSE, text_format=Verdict),
    ),
}


@pytest.mark.parametrize("way", CALLS)
async def test_a_call_is_observed_as_it_was_sent(engine: Engine, way: str) -> None:
    made, call = CALLS[way]
    with serving(saying(Said('{"same": true}'))) as server:
        async with eventctx.wrap(made(server), engine, "s") as client:
            assert "same" in str(await call(client))
    assert (await types_of(engine)).count("provider:response") == 1
    view = await engine.request_view("s", turn=1)
    assert view.verified
    assert view.sent.body() == server.received[0]
    assert (await engine.audit("s")).requests[0].model == "m-1"
    rows = await (await engine.session("s")).get_messages()
    assert ["same" in json.dumps(row) for row in rows] == [False, True]
    assert engine.hooks.stats().errors == {}


async def test_counting_tokens_on_vertex_is_no_call_of_a_model(
    engine: Engine, server: ScriptedHTTP
) -> None:
    async with eventctx.wrap(vertex_client(server), engine, "s") as client:
        await client.messages.create(**CLAUDE)
        await client.messages.count_tokens(model="m-1", messages=ROWS)
    assert len(server.received) == 2
    assert (await types_of(engine)).count("provider:request") == 1


async def test_a_wrapped_client_is_not_wrapped_again(engine: Engine, server: ScriptedHTTP) -> None:
    async with eventctx.wrap(claude_of(server), engine, "s") as client:
        with pytest.raises(InvalidSetting, match="expected a client that is not wrapped"):
            eventctx.wrap(client.with_options(timeout=3), engine, "other")


# -- bodies that are signed, and come in frames ---------------------------------------------------


def framed(event: Body) -> bytes:
    """An event as Amazon Bedrock sends it."""
    headers = b"\x0b:event-type\x07\x00\x05chunk"
    payload = json.dumps({"bytes": base64.b64encode(json.dumps(event).encode()).decode()}).encode()
    lengths = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    head = lengths + struct.pack(">I", zlib.crc32(lengths)) + headers + payload
    return head + struct.pack(">I", zlib.crc32(head))


def test_a_stream_in_frames_is_read_as_far_as_it_came() -> None:
    body, events = claude(1, "m-1", Said("Both check a path.", [("t", "read", {"path": "a.py"})]))
    frames = [framed(one) for one in events]
    whole = answered(b"".join(frames))
    assert whole.finish == body["stop_reason"]
    text = {"type": "text", "text": "Both check a path."}
    assert whole.rows == [{"role": "assistant", "content": [text, *body["content"][1:]]}]
    cut = answered(b"".join(frames)[: -len(frames[-1]) - len(frames[-2]) - 3])
    assert cut.finish is None
    assert "Both check a path." in json.dumps(cut.rows)
    assert answered(b"\0" * 40).rows == []


async def test_a_signed_request_is_recorded_and_never_replaced(
    engine: Engine, server: ScriptedHTTP
) -> None:
    class Signed(anthropic.AsyncAnthropic):  # type: ignore[misc,name-defined]
        async def _prepare_request(self, request: Any) -> None:
            request.headers["authorization"] = "AWS4-HMAC-SHA256 Credential=…"

    inner = Signed(api_key="k", base_url=server.url, http_client=http(anthropic))
    async with eventctx.wrap(inner, engine, "s", compact=True) as client:
        await client.messages.create(**CLAUDE)
    view = await engine.request_view("s", turn=1)
    assert (view.known, view.verified) == ("observed", True)
    assert view.sent.body() == server.received[0]
    assert engine.hooks.stats().dropped == {HOOK: 1}


# -- conversations that the provider keeps --------------------------------------------------------


@pytest.mark.parametrize("state", ["previous_response_id", "conversation", "thread"])
async def test_a_conversation_that_the_provider_keeps_is_never_compacted(
    engine: Engine, server: ScriptedHTTP, state: str
) -> None:
    failing, says = [False, True, False], server.answer
    error = json_reply({}, 500, retry_after_ms="1")
    server.answer = lambda request: error if failing.pop(0) else says(request)
    made, first = (claude_of, CLAUDE) if state == "thread" else (gpt_of, RESPONSE)
    field = "messages" if state == "thread" else "input"
    kept = {"type": "continue", "previous_message_id": "m"} if state == "thread" else "resp_1"
    more = {**first, field: [{"role": "user", "content": "And c.py?"}]}
    async with eventctx.wrap(made(server), engine, "s", compact=True) as client:
        calls = client.messages if state == "thread" else client.responses
        await calls.create(**first)
        again = client.with_options(max_retries=1)
        calls = again.messages if state == "thread" else again.responses
        await calls.create(**more, extra_body={state: kept})
    assert server.received[1:] == [{**more, state: kept}] * 2
    assert (await engine.request_view("s", turn=1)).known == "prepared"
    assert (await engine.request_view("s", turn=2)).known == "observed"
    rows = await (await engine.session("s")).get_messages()
    assert [row["role"] for row in rows] == ["user", "assistant", "user", "assistant"]
    assert "context:messages_set" not in await types_of(engine)


def in_background(*later: Reply) -> Callable[[ReceivedRequest], Reply]:
    """A server whose answer is made later."""
    whole, _ = response(1, "m-1", Said("Only one writes."))
    waiting = {**whole, "status": "queued", "output": [], "usage": None}
    answers = [json_reply(waiting), *later, json_reply(whole)]
    return lambda request: answers.pop(0)


async def test_an_answer_made_in_the_background_is_recorded_when_it_is_asked_for(
    engine: Engine,
    server: ScriptedHTTP,
) -> None:
    server.answer = in_background(json_reply({}, 503))
    async with eventctx.wrap(gpt_of(server), engine, "s") as client:
        begun = await client.responses.create(**RESPONSE, background=True)
        assert (await types_of(engine)).count("provider:response") == 0
        with pytest.raises(openai.InternalServerError):
            await client.responses.retrieve(begun.id)
        assert (await client.responses.retrieve(begun.id)).output_text == "Only one writes."
    types = await types_of(engine)
    assert types.count("provider:request") == types.count("provider:response") == 1
    assert "provider:error" not in types
    assert types.count("prompt:complete") == 1
    assert "Only one writes." in json.dumps(await (await engine.session("s")).get_messages())


# -- streams that are left ------------------------------------------------------------------------


async def left_after(stream: Any, events: int) -> None:
    async for _ in stream:
        events -= 1
        if not events:
            break
    await stream.close()


async def test_what_was_received_of_a_stream_that_was_left_is_in_the_transcript(
    engine: Engine,
    server: ScriptedHTTP,
) -> None:
    async with eventctx.wrap(claude_of(server), engine, "s") as client:
        await left_after(await client.messages.create(**CLAUDE, stream=True), 4)
        left = await (await engine.session("s")).get_messages()
        await client.messages.create(**CLAUDE)
    assert "Both check" in json.dumps(left[1])
    assert "a path." not in json.dumps(left)
    types = await types_of(engine)
    assert types.count("prompt:submit") == 1
    assert [one for one in types if one.startswith("provider:")] == [
        *("provider:request", "provider:error", "provider:request", "provider:response")
    ]
    rows = await (await engine.session("s")).get_messages()
    assert [row["role"] for row in rows] == ["user", "assistant"]
    assert "a path." in json.dumps(rows[1])


@pytest.mark.parametrize("more", [0, 1])
async def test_a_call_that_goes_on_from_a_stream_that_was_left_open_is_recorded(
    engine: Engine, server: ScriptedHTTP, more: int
) -> None:
    begun = {"id": "c", "choices": [{"index": 0, "delta": {"content": "Both"}}]}
    with serving(lambda request: streamed([begun], "stalled")) as silent:
        async with eventctx.wrap(gpt_of(server), engine, "s") as client:
            chats = client.with_options(base_url=silent.url).chat.completions
            async for _ in await chats.create(**CHAT, stream=True):
                break  # which closes no stream of OpenAI's
            rows = [*ROWS, *ROWS[:more]]
            await client.chat.completions.create(**{**CHAT, "messages": rows})
    types = await types_of(engine)
    assert [one for one in types if one.startswith("provider:")] == [
        *("provider:request", "provider:error", "provider:request", "provider:response")
    ]
    assert engine.hooks.stats().dropped == {}


async def test_an_attempt_after_one_that_failed_is_a_call_of_the_same_turn(engine: Engine) -> None:
    with serving(lambda request: streamed([], "cut")) as server:
        async with eventctx.wrap(claude_of(server), engine, "s") as client:
            for _ in range(2):
                with pytest.raises(Exception):  # noqa: B017 - the SDK's or its library's
                    async for _ in await client.messages.create(**CLAUDE, stream=True):
                        pass
    types = await types_of(engine)
    assert (types.count("prompt:submit"), types.count("provider:error")) == (1, 2)


# -- next to what a caller has --------------------------------------------------------------------


async def test_a_message_that_stays_keeps_its_cache_mark(
    engine: Engine, server: ScriptedHTTP
) -> None:
    def marked(text: str, **mark: Any) -> Body:
        return {"role": "user", "content": [{"type": "text", "text": text, **mark}]}

    mark = {"cache_control": {"type": "ephemeral"}}
    said = {"role": "assistant", "content": "Both check a path."}
    async with eventctx.wrap(claude_of(server), engine, "s", compact=True) as client:
        for rows in ([marked("one", **mark)], [marked("one"), said, marked("two", **mark)]):
            await client.messages.create(**{**CLAUDE, "messages": rows})
    assert server.received[1]["messages"][2] == marked("two", **mark)
    assert "cache_control" not in json.dumps(server.received[1]["messages"][:2])
    assert "context:messages_set" not in await types_of(engine)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_a_hook_of_the_callers_client_has_read_is_the_callers_as_before(
    engine: Engine, server: ScriptedHTTP, stream: bool
) -> None:
    async def read(response: Any) -> None:
        await response.aread()

    inner = gpt_of(server)
    inner._client.event_hooks = {"response": [read]}
    async with eventctx.wrap(inner, engine, "s") as client:
        answer = await client.chat.completions.create(**CHAT, stream=stream)
        told = [one async for one in answer] if stream else answer
        assert "path." in str(told)
    assert "Both check" in json.dumps(await (await engine.session("s")).get_messages())


async def test_a_fault_of_ours_costs_no_answer_and_is_counted(server: ScriptedHTTP) -> None:
    engine = await eventctx.open("memory://")
    async with eventctx.wrap(claude_of(server), engine, "s") as client:
        await engine.close()
        answer = await client.messages.create(**CLAUDE)
    assert answer.content[0].text == "Both check a path."
    assert engine.hooks.stats().errors == {HOOK: 1}


async def test_a_call_beside_another_is_passed_on_and_counted(
    engine: Engine, server: ScriptedHTTP
) -> None:
    async with eventctx.wrap(claude_of(server), engine, "s") as client:
        answers = await asyncio.gather(*(client.messages.create(**CLAUDE) for _ in range(2)))
    assert [one.content[0].text for one in answers] == ["Both check a path."] * 2
    assert engine.hooks.stats().dropped == {HOOK: 1}
    assert (await types_of(engine)).count("provider:response") == 1


@pytest.mark.parametrize("client", [None, "client", object()])
async def test_what_is_no_client_is_refused(engine: Engine, client: Any) -> None:
    with pytest.raises(InvalidSetting, match="expected a client of the anthropic or openai SDK"):
        eventctx.wrap(client, engine, "s")


async def test_a_client_without_async_refuses_an_engine_of_async(engine: Engine) -> None:
    blocking = anthropic.Anthropic(api_key="k")
    with blocking as client, pytest.raises(InvalidSetting, match=r"eventctx\.sync"):
        eventctx.wrap(client, engine, "s")
