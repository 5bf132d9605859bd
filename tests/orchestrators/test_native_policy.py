"""Compactions of others: of the provider's API, and of contexts that tell in words of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest

import eventctx
from eventctx import Context, Engine
from eventctx.log.codec import decode_known
from eventctx.orchestrators import AnthropicProvider, OpenAIResponsesProvider, StreamingOrchestrator
from eventctx.testing import EventRecorder, MockContextManager, Reply, ScriptedAmplifierProvider
from eventctx.testing.strict_provider import ApiRequest, StrictServer, strict_provider
from tests.amplifier.hosts import mounting, session
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


def asked_in(requests: list[ApiRequest]) -> list[int]:
    """The places of the requests that ask the API for a summary."""
    return [at for at, one in enumerate(requests) if one.compacts or "compaction" in one.body]


@asynccontextmanager
async def talked(
    engine: Engine, api: str, prepare_at: float | None
) -> AsyncIterator[list[ApiRequest]]:
    """The requests of 14 turns, which the API accepted, with thinking where it may be asked for."""
    thinking = {"thinking": {"type": "adaptive"}} if api == "claude" else {}
    async with strict_provider(model) as server, provider_of(api, server, **thinking) as provider:
        await talk(await opened(engine, provider, prepare_at=prepare_at), provider, 14)
        assert server.refusals == []
        yield server.requests
    assert (await engine.request_view("s", turn=14)).verified
    assert (await engine.verify("s")).ok


@pytest.mark.slow
@pytest.mark.parametrize("api", ["claude", "openai"])
async def test_the_api_writes_the_summary_and_reads_it_from_then_on(
    engine: Engine, api: str
) -> None:
    async with talked(engine, api, None) as requests:
        first, second = asked_in(requests)
    compactions = await ended(engine)
    outcomes = [(one.outcome, one.strategy, one.fallback) for one in compactions]
    assert outcomes == [("applied", "native", None)] * 2
    (insertion,) = compactions[0].plan.insertions
    rows, after = rows_of(requests[first]), rows_of(requests[first + 1])
    if api == "claude":
        [block] = after[0]["content"]
        assert (block["type"], block["content"]) == ("compaction", SUMMARY)
        assert insertion.before is None
        # What a person said stays, after the block; nobody else's words of before do.
        assert [one["role"] for one in after[1:]] == ["user"] * (len(rows) // 2 + 1)
        assert rows_of(requests[second])[0] == after[0]
    else:
        kinds = [one.get("type") or one["role"] for one in after]
        assert kinds == [*["user"] * (len(rows) // 2), "compaction", "user"]
    why = await engine.why("s", 1)
    (stands_in,) = why.stands_in
    assert (why.standing, stands_in.kind) == ("summarised", "summary")
    assert "compaction" in str(stands_in.message)
    assert len(await (await engine.session("s")).get_messages()) == 28


@pytest.mark.slow
@pytest.mark.parametrize("api", ["claude", "openai"])
async def test_the_api_accepts_requests_while_it_summarises(engine: Engine, api: str) -> None:
    async with talked(engine, api, 0.75) as requests:
        (one, *_) = asked_in(requests)
        # One went on without the summary, and a later one begins with it.
        after = ["compaction" in str(rows_of(one)) for one in requests[one + 1 : one + 4]]
        assert after == sorted(after)
        assert after[-1]
    assert {(one.outcome, one.fallback) for one in await ended(engine)} == {("applied", None)}


async def test_a_model_that_cannot_read_the_summary_is_shown_the_logs_view(engine: Engine) -> None:
    async with strict_provider(model) as server, provider_of("claude", server) as provider:
        ctx = await opened(engine, provider)
        await talk(ctx, provider, 7)
        old = AnthropicProvider(provider._client.sdk, "claude-haiku-4-5")
        await talk(ctx, old, 1)
        assert server.refusals == []
        last = rows_of(server.requests[-1])
    assert "compaction" not in str(last)
    assert SAID.strip() in str(last)
    first, second = await ended(engine)
    assert (first.strategy, first.fallback) == ("native", None)
    assert (second.trigger, second.strategy, second.fallback) == ("manual", "native", None)
    asked = second.requested_by
    assert asked == "a request to claude-haiku-4-5, which cannot read the provider's summary"
    assert (await engine.request_view("s", turn=8)).verified


async def test_where_the_api_gives_no_summary_the_ladder_decides_and_says_so(
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


@pytest.mark.parametrize("prepare_at", [None, 0.75])
@pytest.mark.parametrize("api", ["claude", "openai"])
async def test_a_wrapped_client_asks_its_own_api_and_sends_the_summary(
    engine: Engine, api: str, prepare_at: float | None
) -> None:
    sent: list[dict[str, Any]] = []
    async with strict_provider(model) as server, provider_of(api, server) as provider:
        given: Any = {"policy": "native", "max_tokens": 3_000, "prepare_at": prepare_at}
        client = eventctx.wrap(provider._client.sdk, engine, "s", compact=True, **given)
        for part in range(9):
            sent.append({"role": "user", "content": f"Look for the fault in part {part}."})
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
    (asked,) = asked_in(requests)
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


# -- contexts of other libraries on the real kernel, whose compactions hooks hear of --------------


PRE, POST = "context:pre_compact", "context:post_compact"
WHOLE = "context:compaction"
BEGAN, ENDED = "context:compaction_started", "context:compaction_finished"
ALL = (PRE, POST, WHOLE, "context:compact", BEGAN, ENDED, "provider:request", "prompt:submit")

COUNTS = {"before_tokens": 900, "after_tokens": 400, "before_messages": 20, "after_messages": 8}
FROM_SIMPLE = {**COUNTS, "strategy_level": 3, "budget": 1_000}

Told = Sequence[tuple[str, Mapping[str, Any]]]


class Compacting(MockContextManager):
    """Emits events on the host's registry with every request, and may fail behind them."""

    def __init__(self, told: Told, error: Exception | None = None) -> None:
        super().__init__()
        self.hooks: Any = None
        self._told, self._error = told, error

    async def get_messages_for_request(self, *args: Any, **named: Any) -> list[dict[str, Any]]:
        for event, data in self._told:
            await self.hooks.emit(event, dict(data))
        if self._error is not None:
            raise self._error
        return await super().get_messages_for_request(*args, **named)


async def heard(
    *told: tuple[str, Mapping[str, Any]], loop: str = "events", error: Exception | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """What the host's hooks hear in a turn of one request under such a context."""
    recorder, context = EventRecorder(), Compacting(told, error)
    async with session(
        ScriptedAmplifierProvider("Done."),
        loop=f"loop-eventctx-{loop}",
        context="context-foreign",
        hooks=dict.fromkeys(ALL, recorder),
        modules={"context-foreign": mounting("context", context)},
    ) as host:
        context.hooks = host.coordinator.hooks
        with pytest.raises(type(error)) if error else nullcontext():
            assert await host.execute("go") == "Done."
    return list(recorder.events)


def specified(events: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    return [event for event, _ in events if event in (PRE, POST)]


def one(events: Sequence[tuple[str, dict[str, Any]]], name: str) -> dict[str, Any]:
    ((_, data),) = [pair for pair in events if pair[0] == name]
    return data


@pytest.mark.parametrize("loop", ["basic", "streaming", "events"])
async def test_a_compaction_reaches_the_host_under_the_specified_names(loop: str) -> None:
    events = await heard((WHOLE, FROM_SIMPLE), loop=loop)
    assert specified(events) == [PRE, POST]
    before, after = one(events, PRE), one(events, POST)
    assert before["told_after"] is True
    assert before["token_count"] == before["before_tokens"] == before["tokens_before"] == 900
    assert before["message_count"] == before["before_messages"] == before["messages_before"] == 20
    assert after["token_count"] == after["after_tokens"] == after["tokens_after"] == 400
    assert after["message_count"] == after["after_messages"] == after["messages_after"] == 8
    assert after["removed_tokens"] == after["tokens_removed"] == 500
    assert after["removed_messages"] == after["messages_removed"] == 12
    assert (after["strategy"], after["budget"], after["outcome"]) == ("level 3", 1_000, "applied")


async def test_a_compaction_is_a_span_of_its_own_in_the_turn_that_asked_for_it() -> None:
    events = await heard((WHOLE, FROM_SIMPLE), (WHOLE, {**FROM_SIMPLE, "after_tokens": 300}))
    turn = one(events, "prompt:submit")
    told = [data for event, data in events if event in (PRE, POST)]
    assert {data["session_id"] for data in told} == {"session-1"}
    assert {data["turn_id"] for data in told} == {turn["turn_id"]}
    assert {data["parent_span_id"] for data in told} == {turn["span_id"]}
    assert {data["iteration"] for data in told} == {1}
    first, same, second, again = [data["span_id"] for data in told]
    assert first == same != second == again


async def test_a_beginning_is_told_at_once_where_the_context_tells_of_it() -> None:
    began = {"semantic_input_tokens": 900, "revision": 3}
    tokens = {"input_tokens_before": 910, "input_tokens_after": 400}
    ended = {**tokens, "outcome": "fallback", "elapsed_ms": 12, "method": "semantic"}
    events = await heard((BEGAN, began), (ENDED, ended))
    names = [event for event, _ in events]
    assert names.index(PRE) < names.index(ENDED) < names.index(POST)
    before, after = one(events, PRE), one(events, POST)
    assert "told_after" not in before
    assert (before["token_count"], after["before_tokens"], after["after_tokens"]) == (900, 910, 400)
    shown = [after[key] for key in ("outcome", "duration_ms", "strategy")]
    assert shown == ["fallback", 12, "semantic"]
    assert before["span_id"] == after["span_id"]


async def test_a_compaction_whose_end_is_not_told_ends_with_the_turn() -> None:
    events = await heard((BEGAN, {}), error=RuntimeError("the summary failed"))
    assert specified(events) == [PRE, POST]
    assert one(events, POST)["outcome"] == "unknown"


async def test_a_context_that_emits_the_two_itself_is_left_to_it() -> None:
    own = {"message_count": 20, "token_count": 900}
    events = await heard((PRE, own), (WHOLE, FROM_SIMPLE), (POST, own))
    assert specified(events) == [PRE, POST]
    assert "turn_id" not in one(events, PRE)


async def test_a_compaction_of_this_session_is_told_once_with_the_counts_that_are_known() -> None:
    same = {**FROM_SIMPLE, "after_tokens": 900, "after_messages": 20}
    assert specified(await heard()) == []
    assert specified(await heard((WHOLE, same))) == []
    assert specified(await heard((WHOLE, {**FROM_SIMPLE, "session_id": "a child"}))) == []
    two_names = await heard((WHOLE, FROM_SIMPLE), ("context:compact", FROM_SIMPLE))
    assert specified(two_names) == [PRE, POST]
    after = one(await heard((BEGAN, {}), (ENDED, {"outcome": "completed"})), POST)
    assert not [name for name in after if "tokens" in name or "messages" in name]
