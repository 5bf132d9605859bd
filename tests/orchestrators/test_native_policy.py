"""The policy native: an API writes the summary. Over HTTP, with the real SDKs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import eventctx
from eventctx import Context, Engine
from eventctx.log.codec import decode_known
from eventctx.orchestrators import AnthropicProvider, OpenAIResponsesProvider, StreamingOrchestrator
from eventctx.testing import Reply
from eventctx.testing.strict_provider import ApiRequest, StrictServer, strict_provider
from tests.orchestrators.providers.server import claude_client, openai_client

SUMMARY = "The fault is in none of the parts that were read; the kite is blue."
SAID = "It is not here, I looked everywhere. " * 40


def model(request: ApiRequest) -> Reply:
    if request.compacts or request.body.get("compaction"):
        return Reply(SUMMARY)
    thought = "Hm." if request.body.get("thinking") else None
    return Reply(SAID, thinking=thought)


@asynccontextmanager
async def provider_of(api: str, server: StrictServer, **options: Any) -> AsyncIterator[Any]:
    if api == "claude":
        async with claude_client(server.url) as client:
            yield AnthropicProvider(client, "claude-opus-5-5", system="You help.", **options)
    else:
        async with openai_client(f"{server.url}/v1") as other:
            yield OpenAIResponsesProvider(other, "gpt-6-sol", instructions="You help.")


async def opened(engine: Engine, provider: Any, **settings: Any) -> Context:
    given = {"max_tokens": 3_000, "prepare_at": None, **settings}
    return await engine.session("s", policy="native", summarizer=provider.compact, **given)


async def talk(ctx: Context, provider: Any, turns: int) -> None:
    for part in range(turns):
        asked = f"Look for the fault in part {part}."
        await StreamingOrchestrator().execute(asked, ctx, {"api": provider})


async def ended(engine: Engine) -> list[Any]:
    found = [one async for one in engine.records("s") if one.type == "context:post_compact"]
    return [decode_known(one) for one in found]


def rows_of(request: ApiRequest) -> list[dict[str, Any]]:
    return request.body.get("messages") or request.body["input"]


@pytest.mark.parametrize("api", ["claude", "openai"])
async def test_the_api_writes_the_summary_and_reads_it_in_every_later_request(
    engine: Engine, api: str
) -> None:
    thinking = {"thinking": {"type": "adaptive"}} if api == "claude" else {}
    async with strict_provider(model) as server, provider_of(api, server, **thinking) as provider:
        ctx = await opened(engine, provider)
        await talk(ctx, provider, 14)
        assert server.refusals == []
        requests = server.requests
    compactions = await ended(engine)
    assert [(one.outcome, one.strategy, one.fallback) for one in compactions] == [
        ("applied", "native", None)
    ] * 2
    asked = [at for at, one in enumerate(requests) if one.compacts or "compaction" in one.body]
    assert len(asked) == 2
    (insertion,) = compactions[0].plan.insertions
    rows = rows_of(requests[asked[0]])
    after = rows_of(requests[asked[0] + 1])
    if api == "claude":
        [block] = after[0]["content"]
        assert (block["type"], block["content"]) == ("compaction", SUMMARY)
        assert insertion.before is None
        # What a person said stays, after the block; nobody else's words of before do.
        assert [one["role"] for one in after[1:]] == ["user"] * (len(rows) // 2 + 1)
        assert rows_of(requests[asked[1]])[0] == after[0]
    else:
        kinds = [one.get("type") or one["role"] for one in after]
        assert kinds == [*["user"] * (len(rows) // 2), "compaction", "user"]
    why = await engine.why("s", 1)
    (stands_in,) = why.stands_in
    assert (why.standing, stands_in.kind) == ("summarised", "summary")
    assert "compaction" in str(stands_in.message)
    assert (await engine.request_view("s", turn=14)).verified
    assert (await engine.verify("s")).ok
    assert len(await ctx.get_messages()) == 28


@pytest.mark.parametrize("api", ["claude", "openai"])
async def test_the_api_accepts_the_requests_that_go_on_while_it_summarises(
    engine: Engine, api: str
) -> None:
    thinking = {"thinking": {"type": "adaptive"}} if api == "claude" else {}
    async with strict_provider(model) as server, provider_of(api, server, **thinking) as provider:
        ctx = await opened(engine, provider, prepare_at=0.75)
        await talk(ctx, provider, 14)
        assert server.refusals == []
        (one, *_) = [at for at, one in enumerate(server.requests)
                     if one.compacts or "compaction" in one.body]  # fmt: skip
        # One went on without the summary, and a later one begins with it.
        after = ["compaction" in str(rows_of(one)) for one in server.requests[one + 1 : one + 4]]
        assert after == sorted(after)
        assert after[-1]
    assert {(one.outcome, one.fallback) for one in await ended(engine)} == {("applied", None)}
    assert (await engine.request_view("s", turn=14)).verified
    assert (await engine.verify("s")).ok


async def test_a_model_that_cannot_read_the_summary_is_shown_the_log_s_own_view(
    engine: Engine,
) -> None:
    async with strict_provider(model) as server, provider_of("claude", server) as provider:
        ctx = await opened(engine, provider)
        await talk(ctx, provider, 7)
        old = AnthropicProvider(provider._client.sdk, "claude-haiku-4-5")
        await talk(ctx, old, 1)
        assert server.refusals == []
        last = rows_of(server.requests[-1])
    assert "compaction" not in str(last)
    assert SAID.strip() in str(last)
    ways = [(one.trigger, one.strategy, one.fallback) for one in await ended(engine)]
    assert ways[0][1:] == ("native", None)
    assert ways[1] == ("manual", "native", None)
    asked = (await ended(engine))[1].requested_by
    assert asked == "a request to claude-haiku-4-5, which cannot read the provider's summary"
    assert (await engine.request_view("s", turn=8)).verified


async def test_where_the_api_writes_no_summary_the_ladder_decides_and_the_log_says_why(
    engine: Engine,
) -> None:
    def refuses(request: ApiRequest) -> Reply:
        if request.body.get("compaction"):
            return Reply("I would rather not.", finish_reason="refusal")
        return model(request)

    async with strict_provider(refuses) as server, provider_of("claude", server) as provider:
        await talk(await opened(engine, provider), provider, 8)
        assert server.refusals == []
    first = (await ended(engine))[0]
    assert (first.outcome, first.strategy, first.fallback) == ("applied", "native", "ladder")
    assert "stop_reason 'refusal'" in first.error


def told(part: int) -> dict[str, Any]:
    return {"role": "user", "content": f"Look for the fault in part {part}."}


@pytest.mark.parametrize("prepare_at", [None, 0.75])
@pytest.mark.parametrize("api", ["claude", "openai"])
async def test_a_wrapped_client_asks_its_own_api_and_sends_the_summary(
    engine: Engine, api: str, prepare_at: float | None
) -> None:
    sent: list[dict[str, Any]] = []
    async with strict_provider(model) as server, provider_of(api, server) as provider:
        given: Any = {"compact": True, "policy": "native", "max_tokens": 3_000}
        given["prepare_at"] = prepare_at
        client = eventctx.wrap(provider._client.sdk, engine, "s", **given)
        for part in range(9):
            sent.append(told(part))
            if api == "claude":
                answer = await client.messages.create(
                    model="claude-opus-5-5", max_tokens=900, system="You help.", messages=sent
                )
                sent.append({"role": "assistant", "content": answer.to_dict()["content"]})
            else:
                response = await client.responses.create(
                    model="gpt-6-sol", input=sent, instructions="You help.", store=False
                )
                sent += response.to_dict()["output"]
        assert server.refusals == []
        requests = server.requests
    (asked,) = [at for at, one in enumerate(requests) if one.compacts or "compaction" in one.body]
    assert requests[asked].body.get("system", requests[asked].body.get("instructions"))
    assert "compaction" in str(rows_of(requests[asked + (1 if prepare_at is None else 2)]))
    assert [(one.strategy, one.fallback) for one in await ended(engine)] == [("native", None)]
    assert (await engine.request_view("s", turn=9)).verified
    assert len(await (await engine.session("s")).get_messages()) == 18
    assert await engine.hook_failures() == ()


async def test_a_compaction_on_demand_asks_the_api_with_what_is_to_be_kept(engine: Engine) -> None:
    async with strict_provider(model) as server, provider_of("claude", server) as provider:
        ctx = await opened(engine, provider, max_tokens=100_000)
        await talk(ctx, provider, 3)
        done = await ctx.compact(keep="the colour of the kite")
        asked = server.requests[-1].body["compaction"]
        assert server.refusals == []
    assert done.outcome == "applied"
    assert asked["type"] == "summarize" and "the colour of the kite" in asked["instructions"]
