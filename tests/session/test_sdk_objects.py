"""What the real SDKs return goes into a context as it is, and back to their APIs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest

import eventctx
from eventctx.errors import InvalidMessage, InvalidSetting
from eventctx.log.codec import decode_event
from eventctx.log.events import UsageReported
from tests.orchestrators.providers.kits import (
    ANTHROPIC,
    CHAT,
    CHAT_CALL,
    CHAT_TEXT,
    CLAUDE_CALL,
    CLAUDE_TEXT,
    RESPONSE,
    RESPONSE_CALL,
    RESPONSE_EVENTS,
    RESPONSES,
    Kit,
)
from tests.orchestrators.providers.server import Server, json_reply, refused, serving, streamed
from tests.session.given import opened
from tests.sessions import USER

CALLS = [
    {"type": "tool_use", "id": f"c{n}", "name": "read", "input": {"path": "a.py", "last": None}}
    for n in (1, 2)
]
THINKING = CLAUDE_TEXT["content"][0]
PARALLEL = {**CLAUDE_CALL, "content": [THINKING, *CALLS]}


@asynccontextmanager
async def api(kit: Kit, *bodies: Any) -> AsyncIterator[tuple[Any, Server]]:
    """The real client of an SDK, and the server that answers it: with these, then ``kit.text``."""
    async with serving(Server(refused)) as server:
        server.replies = [json_reply(body) if isinstance(body, dict) else body for body in bodies]
        server.replies.append(json_reply(kit.text))
        client = kit.connect(server.url)
        try:
            yield client, server
        finally:
            await client.close()


def asked(kit: Kit, client: Any, rows: list[Any]) -> Any:
    if kit is ANTHROPIC:
        return client.messages.create(model="claude-x", max_tokens=99, messages=rows)
    if kit is CHAT:
        return client.chat.completions.create(model="gpt-x", messages=rows)
    return client.responses.create(model="gpt-x", input=rows, store=False)


async def reported(engine: eventctx.Engine, session: str = "s") -> list[tuple[int, int, int]]:
    """Prompt, output and cached tokens of each usage in the log."""
    found: list[Any] = [decode_event(one) async for one in engine.records(session)]
    used = [one for one in found if isinstance(one, UsageReported)]
    return [(one.prompt, one.output, one.cache_read) for one in used]


async def test_the_content_of_claudes_answer_goes_in_and_back_byte_for_byte() -> None:
    async with api(ANTHROPIC, PARALLEL) as (client, server):
        _engine, ctx = await opened(USER)
        response = await asked(ANTHROPIC, client, await ctx.get_messages_for_request())
        await ctx.add_message({"role": "assistant", "content": response.content})
        ids = [block.id for block in response.content if block.type == "tool_use"]
        text = [{"type": "text", "text": "x"}]
        done = {"type": "tool_result", "content": text}
        results = [{**done, "tool_use_id": one} for one in ids]
        await ctx.add_message({"role": "user", "content": results})
        await asked(ANTHROPIC, client, await ctx.get_messages_for_request())
        stored = {"role": "assistant", "content": [THINKING, *CALLS]}
        assert server.requests[-1].body["messages"][1] == stored
        assert (await ctx.get_messages())[1] == stored


async def test_a_whole_answer_of_claude_is_parted_into_its_message_and_its_usage() -> None:
    async with api(ANTHROPIC, CLAUDE_TEXT) as (client, server):
        engine, ctx = await opened(USER)
        response = await asked(ANTHROPIC, client, await ctx.get_messages_for_request())
        await ctx.add_message(response)
        text = {"type": "text", "text": CLAUDE_TEXT["content"][1]["text"]}
        stored = {"role": "assistant", "content": [THINKING, text]}
        assert (await ctx.get_messages())[1] == stored
        assert await reported(engine) == [(130, 7, 100)]
        await ctx.add_message(USER)
        await asked(ANTHROPIC, client, await ctx.get_messages_for_request())
        assert server.requests[-1].body["messages"][1] == stored


@pytest.mark.parametrize("part", ["message", "choice", "answer"])
async def test_a_chat_completion_goes_in_as_message_choice_or_whole(part: str) -> None:
    async with api(CHAT, CHAT_CALL) as (client, server):
        engine, ctx = await opened(USER)
        response = await asked(CHAT, client, await ctx.get_messages_for_request())
        choice = response.choices[0]
        parts = {"message": choice.message, "choice": choice, "answer": response}
        await ctx.add_message(parts[part])
        call = CHAT_CALL["choices"][0]["message"]["tool_calls"][0]
        call = {key: value for key, value in call.items() if key != "index"}
        stored = {"role": "assistant", "content": None, "tool_calls": [call]}
        assert (await ctx.get_messages())[1] == stored
        assert await reported(engine) == ([(130, 7, 100)] if part == "answer" else [])
        await ctx.add_message({"role": "tool", "tool_call_id": "c1", "content": "x"})
        await asked(CHAT, client, await ctx.get_messages_for_request())
        assert server.requests[-1].body["messages"][1] == stored


@pytest.mark.parametrize("in_stream", [False, True])
async def test_items_of_a_response_go_in_one_by_one(in_stream: bool) -> None:
    first = streamed(RESPONSE_EVENTS) if in_stream else json_reply(RESPONSE)
    async with api(RESPONSES, first) as (client, server):
        engine, ctx = await opened(USER)
        rows: Any = await ctx.get_messages_for_request()
        async with ctx.turn() as turn, turn.iteration() as cycle, cycle.provider_call() as call:
            if in_stream:
                events = await client.responses.create(
                    model="gpt-x", input=rows, store=False, stream=True
                )
                (found,) = [e.response async for e in events if e.type == "response.completed"]
            else:
                found = await asked(RESPONSES, client, rows)
            await call.usage_from(found)
        for item in found.output:
            await ctx.add_message(item)
        assert await reported(engine) == [(130, 7, 100)]
        await ctx.add_message(USER)
        await asked(RESPONSES, client, await ctx.get_messages_for_request())
        reasoning, text = RESPONSE["output"]
        reasoning = {key: value for key, value in reasoning.items() if value is not None}
        assert server.requests[-1].body["input"][1:3] == [reasoning, text]


async def test_a_whole_transcript_of_sdk_objects_can_be_set() -> None:
    async with api(ANTHROPIC, CLAUDE_TEXT) as (client, _):
        engine, ctx = await opened()
        response = await asked(ANTHROPIC, client, [USER])
        await ctx.set_messages([USER, {"role": "assistant", "content": response.content}])
        await ctx.add_message(USER)
        assert await ctx.resume_messages([USER, response, USER]) is False
        assert len(await ctx.get_messages()) == 3
        assert await reported(engine) == []


@pytest.mark.parametrize("kit", [ANTHROPIC, CHAT], ids=lambda kit: kit.name)
@pytest.mark.parametrize(
    "order", ["call", "add", "call, add", "add, call", "after", "numbers, add", "numbers"]
)
async def test_usage_is_recorded_once_however_it_is_taken(kit: Kit, order: str) -> None:
    async with api(kit) as (client, _):
        engine, ctx = await opened()
        async with ctx.turn() as turn, turn.iteration() as cycle:
            await ctx.add_message(USER)
            rows = await ctx.get_messages_for_request()
            async with cycle.provider_call() as call:
                response = await asked(kit, client, rows)
                for step in order.split(", "):
                    if step == "call":
                        await call.usage_from(response)
                    elif step == "numbers":
                        await call.usage(130, 7, cache_read=100)
                    elif step == "add":
                        await ctx.add_message(response)
            if order in ("call", "after", "numbers"):
                await ctx.add_message(response)
        assert await reported(engine) == [(130, 7, 100)]
        events: dict[str, Any] = {one.type: decode_event(one) async for one in engine.records("s")}
        if order not in ("after", "numbers", "numbers, add"):
            assert events["provider:response"].finish_reason in ("end_turn", "stop")
        (request,) = (await engine.audit("s")).requests
        assert events["usage:reported"].prepared == request.position
        assert request.reported is not None


async def test_each_answer_counts_where_no_request_was_prepared() -> None:
    again = {**CLAUDE_TEXT, "id": "msg_2"}
    async with api(ANTHROPIC, CLAUDE_TEXT, again) as (client, _):
        engine, ctx = await opened()
        for _ in range(2):
            await ctx.add_message(await asked(ANTHROPIC, client, [USER]))
        assert await reported(engine) == [(130, 7, 100)] * 2


@pytest.mark.parametrize("body", [CLAUDE_TEXT, CHAT_TEXT, RESPONSE], ids=["claude", "chat", "resp"])
async def test_usage_is_read_from_a_plain_body_and_nothing_else(body: dict[str, Any]) -> None:
    engine, ctx = await opened()
    async with ctx.turn() as turn, turn.iteration() as cycle, cycle.provider_call() as call:
        for wrong in (None, {}, "text", 3, {"usage": {}}, {"usage": "much"}, object()):
            with pytest.raises(InvalidSetting, match="usage_from: expected the answer"):
                await call.usage_from(wrong)
        assert await reported(engine) == []
        await call.usage_from(json.loads(json.dumps(body)))
        assert call.model == body["model"]
    assert await reported(engine) == [(130, 7, 100)]


class Row(pydantic.BaseModel):
    role: str = "user"
    content: str
    name: str | None = None


def failing() -> dict[str, Any]:
    raise RuntimeError("no")


FAILING = SimpleNamespace(to_dict=failing)
CUSTOM: Any = SimpleNamespace(to_dict=lambda: {"role": "user", "content": [Row(content="inside")]})


async def test_a_callers_own_models_go_in_with_their_defaults_and_plain_dicts_as_they_are() -> None:
    body = {key: value for key, value in CLAUDE_TEXT.items() if key != "usage"}
    _, ctx = await opened()
    for row in (Row(content="hello"), CUSTOM, body):
        await ctx.add_message(row)
    inside = [{"role": "user", "content": "inside"}]
    assert await ctx.get_messages() == [USER, {"role": "user", "content": inside}, body]


async def test_what_holds_no_message_is_refused_with_what_to_do() -> None:
    two = {**CHAT_TEXT, "choices": [{**CHAT_TEXT["choices"][0], "index": n} for n in (0, 1)]}
    async with api(CHAT, two) as (client, _):
        engine, ctx = await opened()
        whole = await asked(CHAT, client, [USER])
        rows: list[tuple[Any, str]] = [
            (whole, r"2 choices"),
            ({"role": "user", "content": [FAILING]}, r"RuntimeError\('no'\)"),
            ({"role": "user", "content": [Row(content="x"), {1}]}, r"\$\.content\[1\].*a set"),
            ({"role": "user", "content": Row}, "the class Row"),
        ]
        for row, said in rows:
            with pytest.raises(InvalidMessage, match=said):
                await ctx.add_message(row)
        pending = asked(CHAT, client, [USER])
        with pytest.raises(InvalidMessage, match="was not awaited"):
            await ctx.add_message(pending)
        await pending
        assert await ctx.get_messages() == []
    async with api(RESPONSES, RESPONSE_CALL) as (client, _):
        engine, ctx = await opened()
        with pytest.raises(InvalidMessage, match=r"each item of response\.output"):
            await ctx.add_message(await asked(RESPONSES, client, [USER]))
        assert await reported(engine) == []
