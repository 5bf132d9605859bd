"""The SDKs of Anthropic and OpenAI, wrapped: hosts, states, left streams, faults, threads."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

anthropic = pytest.importorskip("anthropic", reason="an extra: eventctx[anthropic]")
openai = pytest.importorskip("openai", reason="an extra: eventctx[openai]")

from pydantic import BaseModel  # noqa: E402

import eventctx  # noqa: E402
import eventctx.sync  # noqa: E402
from eventctx.adapters.clients.exchange import answered  # noqa: E402
from eventctx.engine import Engine  # noqa: E402
from eventctx.errors import InvalidSetting  # noqa: E402
from tests.adapters.logs import count, types_of  # noqa: E402
from tests.adapters.wrapped_apis import APIS  # noqa: E402
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


def of_anthropic(kind: str, path: str = "", **given: Any) -> Callable[[ScriptedHTTP], Any]:
    """A kind of client of Anthropic's SDK."""
    made = getattr(anthropic, kind)
    return lambda server: made(base_url=f"{server.url}{path}", http_client=http(anthropic), **given)


async def calls_of(engine: Engine) -> list[str]:
    await engine.close_session("s")  # deferred activity is written
    return [one for one in await types_of(engine) if one.startswith("provider:")]


async def rows_of(engine: Engine) -> list[Body]:
    return await (await engine.session("s")).get_messages()


ON_VERTEX = {"region": "europe-west6", "project_id": "p", "access_token": "t"}
vertex_client = of_anthropic("AsyncAnthropicVertex", "/v1", **ON_VERTEX)
foundry_client = of_anthropic("AsyncAnthropicFoundry", "/anthropic", api_key="k")
bedrock_client = of_anthropic("AsyncAnthropicBedrock", aws_region="eu-central-2", api_key="k")

CALLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Awaitable[Any]]]] = {
    "azure": (azure_client, lambda one: one.chat.completions.create(**CHAT)),
    "foundry": (foundry_client, lambda one: one.messages.create(**CLAUDE)),
    "vertex": (vertex_client, lambda one: one.messages.create(**CLAUDE)),
    "bedrock": (bedrock_client, lambda one: one.messages.create(**CLAUDE)),
    "with_options": (claude_of, lambda one: one.with_options(timeout=3).messages.create(**CLAUDE)),
    "parsed": (claude_of, lambda one: one.beta.messages.parse(**CLAUDE, output_format=Verdict)),
    "response parsed": (gpt_of, lambda one: one.responses.parse(**RESPONSE, text_format=Verdict)),
}


@pytest.mark.parametrize("way", CALLS)
async def test_a_call_is_observed_as_it_was_sent(engine: Engine, way: str) -> None:
    made, call = CALLS[way]
    with serving(saying(Said('{"same": true}'))) as server:
        async with eventctx.wrap(made(server), engine, "s") as client:
            assert "same" in str(await call(client))
    assert await calls_of(engine) == ["provider:request", "provider:response"]
    view = await engine.request_view("s", turn=1)
    assert (view.verified, view.sent.body()) == (True, server.received[0])
    assert (await engine.audit("s")).requests[0].model == "m-1"
    assert ["same" in json.dumps(row) for row in await rows_of(engine)] == [False, True]
    assert engine.hooks.stats().errors == {}


async def test_counting_tokens_on_vertex_is_no_call(engine: Engine, server: ScriptedHTTP) -> None:
    async with eventctx.wrap(vertex_client(server), engine, "s") as client:
        await client.messages.create(**CLAUDE)
        await client.messages.count_tokens(model="m-1", messages=ROWS)
    assert len(server.received) == 2
    assert await calls_of(engine) == ["provider:request", "provider:response"]


async def test_what_cannot_be_wrapped_is_refused(engine: Engine, server: ScriptedHTTP) -> None:
    inner: Any = claude_of(server)
    async with eventctx.wrap(claude_of(server), engine, "s") as client:
        twice = client.with_options(timeout=3)
    with APIS["messages"].client(server.url, blocking=True) as blocking:
        no_client = "expected a client of the anthropic or openai SDK"
        no_engine = "expected an engine, or the path of a store"
        for wrong, where, says in (
            *((one, engine, no_client) for one in (None, "client", object())),
            *((inner, one, no_engine) for one in (None, 3, object())),
            (twice, engine, "expected a client that is not wrapped"),
            (blocking, engine, r"eventctx\.sync"),
        ):
            with pytest.raises(InvalidSetting, match=says):
                eventctx.wrap(wrong, where, "s")
    with pytest.raises(InvalidSetting, match=r"found no loop that runs.*eventctx\.sync"):
        await asyncio.to_thread(eventctx.wrap, inner, engine, "s")


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
    text = {"type": "text", "text": "Both check a path."}
    said = [{"role": "assistant", "content": [text, *body["content"][1:]]}]
    assert (whole.finish, whole.rows) == (body["stop_reason"], said)
    cut = answered(b"".join(frames)[: -len(frames[-1]) - len(frames[-2]) - 3])
    assert cut.finish is None and "Both check a path." in json.dumps(cut.rows)
    assert answered(b"\0" * 40).rows == []


async def test_a_signed_request_is_never_replaced(engine: Engine, server: ScriptedHTTP) -> None:
    class Signed(anthropic.AsyncAnthropic):  # type: ignore[misc,name-defined]
        async def _prepare_request(self, request: Any) -> None:
            request.headers["authorization"] = "AWS4-HMAC-SHA256 Credential=…"

    inner = Signed(api_key="k", base_url=server.url, http_client=http(anthropic))
    async with eventctx.wrap(inner, engine, "s", compact=True) as client:
        await client.messages.create(**CLAUDE)
    view = await engine.request_view("s", turn=1)
    sent = server.received[0]
    assert (view.known, view.verified, view.sent.body()) == ("observed", True, sent)
    assert engine.hooks.stats().dropped == {HOOK: 1}


@pytest.mark.parametrize("state", ["previous_response_id", "conversation", "thread"])
async def test_a_conversation_that_the_provider_keeps_is_never_compacted(
    engine: Engine, server: ScriptedHTTP, state: str
) -> None:
    failing, says = [False, True, False], server.answer
    error = json_reply({}, 500, retry_after_ms="1")
    server.answer = lambda request: error if failing.pop(0) else says(request)
    api, first, field, kept = APIS["responses"], RESPONSE, "input", "resp_1"
    if state == "thread":
        api, first, field = APIS["messages"], CLAUDE, "messages"
        kept = {"type": "continue", "previous_message_id": "m"}
    more = {**first, field: [{"role": "user", "content": "And c.py?"}]}
    async with eventctx.wrap(api.client(server.url), engine, "s", compact=True) as client:
        await api.methods(client).create(**first)
        await api.methods(client).create(**more, extra_body={state: kept})
    assert server.received[1:] == [{**more, state: kept}] * 2
    views = [await engine.request_view("s", turn=turn) for turn in (1, 2)]
    assert [one.known for one in views] == ["prepared", "observed"]
    assert [row["role"] for row in await rows_of(engine)] == ["user", "assistant"] * 2
    assert await count(engine, "context:messages_set") == [0]


async def test_a_background_answer_is_recorded(engine: Engine, server: ScriptedHTTP) -> None:
    whole, _ = response(1, "m-1", Said("Only one writes."))
    waiting = {**whole, "status": "queued", "output": [], "usage": None}
    answers = [json_reply(waiting), json_reply({}, 503), json_reply(whole)]
    server.answer = lambda request: answers.pop(0)
    async with eventctx.wrap(gpt_of(server), engine, "s") as client:
        begun = await client.responses.create(**RESPONSE, background=True)
        assert await calls_of(engine) == ["provider:request"]
        with pytest.raises(openai.InternalServerError):
            await client.responses.retrieve(begun.id)
        assert (await client.responses.retrieve(begun.id)).output_text == "Only one writes."
    assert await calls_of(engine) == ["provider:request", "provider:response"]
    assert await count(engine, "prompt:complete") == [1]
    assert "Only one writes." in json.dumps(await rows_of(engine))


# -- streams that are left ------------------------------------------------------------------------


LEFT_AND_ASKED_AGAIN = [
    *("provider:request", "provider:error", "provider:request", "provider:response")
]


async def test_what_came_of_a_left_stream_is_kept(engine: Engine, server: ScriptedHTTP) -> None:
    async with eventctx.wrap(claude_of(server), engine, "s") as client:
        async with await client.messages.create(**CLAUDE, stream=True) as stream:
            for _ in range(4):
                await anext(stream)
        left = json.dumps(await rows_of(engine))
        await client.messages.create(**CLAUDE)
    assert "Both check" in left and "a path." not in left
    assert await calls_of(engine) == LEFT_AND_ASKED_AGAIN
    assert await count(engine, "prompt:submit") == [1]
    asked, said = await rows_of(engine)
    assert (asked["role"], said["role"]) == ("user", "assistant")
    assert "a path." in json.dumps(said)


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
    assert await calls_of(engine) == LEFT_AND_ASKED_AGAIN
    assert engine.hooks.stats().dropped == {}


async def test_an_attempt_after_one_that_failed_is_a_call_of_the_same_turn(engine: Engine) -> None:
    with serving(lambda request: streamed([], "cut")) as server:
        async with eventctx.wrap(claude_of(server), engine, "s") as client:
            for _ in range(2):
                with pytest.raises(Exception):  # noqa: B017 - the SDK's or its library's
                    async for _ in await client.messages.create(**CLAUDE, stream=True):
                        pass
    assert await calls_of(engine) == ["provider:request", "provider:error"] * 2
    assert await count(engine, "prompt:submit") == [1]


# -- next to what a caller has --------------------------------------------------------------------


async def test_a_message_that_stays_keeps_its_mark(engine: Engine, server: ScriptedHTTP) -> None:
    def marked(text: str, **mark: Any) -> Body:
        return {"role": "user", "content": [{"type": "text", "text": text, **mark}]}

    mark = {"cache_control": {"type": "ephemeral"}}
    said = {"role": "assistant", "content": "Both check a path."}
    async with eventctx.wrap(claude_of(server), engine, "s", compact=True) as client:
        for rows in ([marked("one", **mark)], [marked("one"), said, marked("two", **mark)]):
            await client.messages.create(**{**CLAUDE, "messages": rows})
    assert server.received[1]["messages"][2] == marked("two", **mark)
    assert "cache_control" not in json.dumps(server.received[1]["messages"][:2])
    assert await count(engine, "context:messages_set") == [0]


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
    assert "Both check" in json.dumps(await rows_of(engine))


async def test_calls_beside_others_and_our_faults_cost_no_answer(server: ScriptedHTTP) -> None:
    engine = await eventctx.open("memory://")
    async with eventctx.wrap(claude_of(server), engine, "s") as client:
        answers = await asyncio.gather(*(client.messages.create(**CLAUDE) for _ in range(2)))
        assert engine.hooks.stats().dropped == {HOOK: 1}
        assert (await calls_of(engine)).count("provider:response") == 1
        await engine.close()
        answers.append(await client.messages.create(**CLAUDE))
    assert [one.content[0].text for one in answers] == ["Both check a path."] * 3
    assert engine.hooks.stats().errors == {HOOK: 1}


# -- without async, and clients and engines of different loops and threads -------------------------


@pytest.fixture
def blocking_engine() -> Iterator[Any]:
    with eventctx.sync.open("memory://") as opened:
        yield opened


def answers_in(engine: Any, session: str) -> int:
    engine.close_session(session)  # deferred activity is written
    return [one.type for one in engine.records(session)].count("provider:response")


def test_each_thread_has_its_own_conversation(blocking_engine: Any, server: ScriptedHTTP) -> None:
    def work(name: str) -> None:
        client = eventctx.wrap(inner, blocking_engine, name)
        for _ in range(3):
            client.chat.completions.create(**CHAT)

    with APIS["chat"].client(server.url, blocking=True) as inner:
        threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert [answers_in(blocking_engine, name) for name in "abc"] == [3, 3, 3]
    assert blocking_engine.hooks.stats().dropped == {}


def test_a_client_whose_engines_loop_has_ended_gets_its_answer(server: ScriptedHTTP) -> None:
    async def opened() -> tuple[Any, Any]:
        engine = await eventctx.open("memory://")
        client = eventctx.wrap(claude_of(server), engine, "s")
        await client.messages.create(**CLAUDE)
        return engine, client

    async def asked(engine: Any, client: Any) -> Any:
        answer = await client.messages.create(**CLAUDE)
        await engine.close()
        return answer

    def once(request: ReceivedRequest) -> Reply:  # a connection belongs to one loop, too
        reply = saying()(request)
        return replace(reply, headers={**reply.headers, "connection": "close"})

    server.answer = once
    engine, client = asyncio.run(opened())
    assert "Both check a path." in str(asyncio.run(asked(engine, client)))
    assert engine.hooks.stats().errors == {HOOK: 1}


def test_a_store_is_open_as_long_as_the_client(tmp_path: Path, server: ScriptedHTTP) -> None:
    path = tmp_path / "wrapped.db"

    async def asked(session: str) -> None:
        async with eventctx.wrap(claude_of(server), path, session) as client:
            await client.messages.create(**CLAUDE)

    inner = APIS["messages"].client(server.url, blocking=True)
    with eventctx.wrap(inner, str(path), "blocking") as client:
        client.messages.create(**CLAUDE)
    for session in ("with async", "another loop"):
        asyncio.run(asked(session))
    assert "eventctx-wrap" not in [one.name for one in threading.enumerate()]
    with eventctx.sync.open(path) as engine:
        names = ["blocking", "with async", "another loop"]
        assert [answers_in(engine, name) for name in names] == [1, 1, 1]


def test_a_stream_that_is_collected_in_the_engines_own_thread_is_a_cancelled_call(
    blocking_engine: Any, server: ScriptedHTTP
) -> None:
    engine = blocking_engine
    with eventctx.wrap(APIS["chat"].client(server.url, blocking=True), engine, "s") as client:
        create = client.chat.completions.with_streaming_response.create
        with create(**CHAT, stream=True) as answer:
            pieces = [answer.iter_bytes()]
            next(pieces[0])
            engine.on("*", lambda record: pieces.clear())
            engine.session("other").add_message({"role": "user", "content": "Here."})
            assert not pieces
    engine.close_session("s")
    assert [one.type for one in engine.records("s")].count("provider:error") == 1
    assert engine.hooks.stats().errors == {}
