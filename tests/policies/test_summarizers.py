"""Summarizers in sessions: what they are asked, bad ones, and what happens while they run."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.log.plan import numbers_in
from eventctx.policies.advisers import ModelAnswer, SummaryRequest
from eventctx.policies.ladder import Ladder
from eventctx.policies.policy import AskSummary, Budget, PolicyState, Visible
from eventctx.policies.summarize import Summarize
from eventctx.projections.trace.fold import fold as spans
from eventctx.projections.view import request_view
from eventctx.queries.requests import fold
from eventctx.stores.memory import MemoryStore
from tests.loop_time import LIMIT, hang_past_the_limit
from tests.orchestrators.providers.server import ReceivedRequest, refused
from tests.policies.advisers import Paused, Scripted, check_fallback, talk
from tests.policies.given import compactions_of, model, user
from tests.sessions import names, tool_round
from tests.transcripts import refusal

# -- live sessions -------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def due(
    summarizer: Any, messages: int = 20, clock: Any = None, **options: Any
) -> AsyncIterator[tuple[Engine, Any]]:
    """A session of questions and answers that is due for a compaction."""
    options = {"max_tokens": 10_000, "adviser_timeout": LIMIT, "prepare_at": None, **options}
    async with eventctx.open(**({"clock": clock} if clock else {})) as engine:
        ctx = await engine.session("s", policy="summarize", summarizer=summarizer, **options)
        for message in talk(messages):
            await ctx.add_message(message)
        yield engine, ctx


async def outcomes(engine: Engine) -> list[str]:
    return [row.outcome for row in (await engine.audit("s")).compactions]


async def test_a_long_session_has_summaries_of_rising_depth_and_all_of_its_messages() -> None:
    async with due(Scripted(), 0, fan_in=2) as (engine, ctx):
        for message in talk(90):
            await ctx.add_message(message)
            await ctx.get_messages_for_request()
        layout = (await fold(engine.store, "s", request_view)).layout
        depths = [one.depth for one in layout.insertions]
        assert max(depths) >= 3
        assert depths == sorted(depths, reverse=True)
        told = numbers_in(run for one in layout.insertions for run in one.stands_for)
        assert told | {ref.number for ref in layout.refs} == set(range(180))
        assert {row.fallback for row in (await engine.audit("s")).compactions} == {None}


async def test_the_summarizer_gets_messages_and_hint_and_the_header_their_times() -> None:
    day, summarizer, headers = 86_400 * 10**9, Scripted("One.", "Two.", "Three."), []
    clock = iter(range(1_705_276_800 * 10**9, 10**19, day // 10))
    async with due(summarizer, 12, lambda: next(clock), fan_in=2) as (engine, ctx):
        for _ in range(3):
            result = await ctx.compact(keep="the port number 8417")
            assert result.outcome == "applied"
            texts = [m["content"] for m in await ctx.get_messages_for_request()]
            # What a summarizer is told to do is in no view.
            assert "8417" not in str(texts) and "Summarize the conversation" not in str(texts)
            headers.append([text.split("\n")[0] for text in texts if text.startswith("[Summary")])
            for message in talk(6):
                await ctx.add_message(message)
        records = [r async for r in engine.records("s") if r.type == "context:message_added"]
        transcript = await ctx.get_messages()
    first, _, third = summarizer.requests
    assert first.hint == "the port number 8417"
    assert "the port number 8417" in first.instruction
    assert list(first.messages) == [transcript[number] for number in first.numbers]
    assert [text.split("\n")[3] for text in third.earlier] == ["| One.", "| Two."]
    times = [records[number].time // 10**9 for number in (first.numbers[0], first.numbers[-1])]
    dates = [f"{datetime.datetime.fromtimestamp(one, datetime.UTC):%Y-%m-%d}" for one in times]
    assert dates[0] != dates[1]
    assert f"covers {dates[0]} to {dates[1]}]" in headers[0][0]
    assert headers[2][0].startswith("[Summary: depth 2, ")
    assert f"covers {dates[0]} to " in headers[2][0]


async def test_the_prompt_for_a_summary_is_one_that_the_raw_apis_take() -> None:
    summarizer = Scripted()
    async with due(summarizer, 0, fan_in=2) as (_, ctx):
        await ctx.add_message(user("Read the parts."))
        for number in range(90):
            call, result = tool_round(number, 2_000)
            # Of some no result was recorded.
            await ctx.add_messages([call, result] if number % 9 else [call])
            await ctx.get_messages_for_request()
    requests = summarizer.requests
    assert any(request.messages[0]["role"] == "assistant" for request in requests)
    assert any(request.earlier for request in requests)
    for request in requests:
        body = {"messages": request.prompt}
        assert refused(ReceivedRequest("/v1/messages", {}, body)) is None
        assert all(text.splitlines()[3] in str(request.prompt) for text in request.earlier)
        assert request.prompt[-1] == user(request.instruction)
        results = [m for m in request.messages if m["role"] == "user"]
        assert all(message in request.prompt for message in results)


async def test_a_dry_run_calls_no_summarizer_and_its_usage_is_not_the_sessions_own() -> None:
    answer = ModelAnswer("Fine.", model="gpt-4o-mini", prompt=3_000, output=4)
    async with due(summarizer := Scripted(answer), 8) as (engine, ctx):
        await ctx.get_messages_for_request(model="claude-sonnet-4-5")
        recorded = await names(engine)
        assert (await ctx.compact(dry_run=True)).outcome == "applied"
        assert (summarizer.requests, await names(engine)) == ([], recorded)
        before = (await fold(engine.store, "s", request_view)).calibration
        assert (await ctx.compact()).outcome == "applied"
        after = (await fold(engine.store, "s", request_view)).calibration
        assert (after.model, after.readings) == (before.model, before.readings)


async def test_the_header_tells_when_a_message_was_added_not_when_it_was_shortened() -> None:
    now = [1_705_276_800 * 10**9]
    async with due(Scripted(), 0, lambda: now[0]) as (engine, ctx):
        call, result = tool_round(1)
        call["content"][0]["input"] = {"text": "w" * 16_000}
        for message in [user("go"), call, result, *talk(3, 2_000)]:
            await ctx.add_message(message)
        now[0] += 40 * 86_400 * 10**9
        await ctx.compact(policy=Ladder(protected_recent=0.1, protected_tool_results=0))
        assert (await fold(engine.store, "s", request_view)).layout.shortened
        assert (await ctx.compact()).outcome == "applied"
        texts = [m["content"] for m in await ctx.get_messages_for_request()]
        (header,) = [t.split("\n")[0] for t in texts if str(t).startswith("[Summary")]
        assert "covers 2024-01-15 to 2024-01-15]" in header


async def test_a_policy_of_ones_own_may_ask_about_a_result_without_a_call_too() -> None:
    class AsksAboutAll(Summarize, frozen=True):
        name: str = "mine"
        version: int = 3

        def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Any:
            if state.answers:
                return Ladder().propose(visible, budget, state)
            return AskSummary("all", tuple(ref.number for ref in visible.messages), 100)

    store, summarizer = MemoryStore(), Scripted()
    ctx = await Engine(store).session("s", max_tokens=2_000)
    await ctx.add_messages([user("go"), tool_round(1)[1], *talk(4)])
    engine = Engine(store)
    again = await engine.session("s", summarizer=summarizer, max_tokens=2_000)
    assert (await again.compact(policy=AsksAboutAll())).outcome == "applied"
    assert summarizer.requests[0].numbers == tuple(range(10))
    (event,) = await compactions_of(engine)
    assert (event.strategy, event.strategy_version) == ("mine", 3)


# -- bad summarizers -----------------------------------------------------------------------------


def plain(request: SummaryRequest) -> Any:
    raise RuntimeError("no coroutine here")


@pytest.mark.parametrize(
    ("summarizer", "said"),
    [
        (Scripted(RuntimeError("\ud800")), r"raised RuntimeError: \ud800"),
        (Scripted(TimeoutError()), "time-out"),
        (Scripted(" \n\t"), "expected a text"),
        (Scripted({"text": "Fine."}), "expected a text"),
        (Scripted(ModelAnswer(None)), "answered None; expected a text"),
        (Scripted("\ud800"), "UTF-8"),
        (Scripted(asyncio.CancelledError("by the provider's client")), "CancelledError"),
        (Scripted("word " * 20_000), "expected at most 625"),
        (Scripted("x\n" * 1_600), "tokens; expected"),
        (hang_past_the_limit, "the summarizer took longer than its time-out"),
        (plain, "raised RuntimeError: no coroutine here"),
        (lambda request: 7, "the summarizer answered 7; expected a text"),
    ],
)
async def test_a_bad_answer_ends_in_the_ladder_and_says_why(summarizer: Any, said: str) -> None:
    async with due(summarizer) as (engine, ctx):
        await check_fallback(engine, ctx, said)


# -- while the summarizer runs -------------------------------------------------------------------


@contextlib.asynccontextmanager
async def paused() -> AsyncIterator[tuple[Engine, Any, Paused, asyncio.Task[Any]]]:
    """A session whose summarizer is at work for a request, which ends with the test."""
    async with due(summarizer := Paused()) as (engine, ctx):
        request = asyncio.create_task(ctx.get_messages_for_request())
        await summarizer.called.wait()
        yield engine, ctx, summarizer, request
        summarizer.may_answer.set()
        with contextlib.suppress(asyncio.CancelledError):
            await request


async def test_a_cancelled_request_closes_its_compaction_and_the_session_goes_on() -> None:
    async with paused() as (engine, ctx, summarizer, request):
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        summarizer.may_answer.set()
        await ctx.get_messages_for_request()
        assert await outcomes(engine) == ["cancelled", "applied"]
        last = (await engine.audit("s")).compactions[-1]
        assert (last.fallback, last.error) == (None, None)
        found = await names(engine)
        assert found.count("context:pre_compact") == found.count("context:post_compact") == 2


async def test_messages_added_meanwhile_are_in_the_view_afterwards() -> None:
    async with paused() as (engine, ctx, summarizer, request):
        await ctx.add_messages([user("added meanwhile"), model("so was this")])
        summarizer.may_answer.set()
        assert (await request)[-2:] == [user("added meanwhile"), model("so was this")]
        assert len(summarizer.requests) == 1
        assert await outcomes(engine) == ["applied"]


async def test_a_message_pinned_meanwhile_stays() -> None:
    async with paused() as (engine, ctx, summarizer, request):
        await ctx.pin(5)
        summarizer.may_answer.set()
        assert (await ctx.get_messages())[5] in await request
        _, second = summarizer.requests
        assert 5 not in second.numbers
        assert await outcomes(engine) == ["applied"]


async def test_a_clear_meanwhile_leaves_nothing_to_compact() -> None:
    async with paused() as (engine, ctx, summarizer, request):
        await ctx.clear()
        await ctx.add_message(user("anew"))
        summarizer.may_answer.set()
        assert await request == [user("anew")]
        assert await outcomes(engine) == ["skipped"]
        assert len(summarizer.requests) == 1


async def test_a_set_meanwhile_makes_the_policy_decide_anew() -> None:
    async with paused() as (engine, ctx, summarizer, request):
        await ctx.set_messages(talk(40)[40:])
        summarizer.may_answer.set()
        assert refusal(await request) is None
        assert await outcomes(engine) == ["applied"]
        layout = (await fold(engine.store, "s", request_view)).layout
        told = numbers_in(run for one in layout.insertions for run in one.stands_for)
        assert told and min(told) >= 40


OTHER: dict[str, Any] = {"policy": "summarize", "summarizer": Scripted()}


async def test_a_crash_meanwhile_is_closed_as_failed_by_who_opens_the_session_next() -> None:
    async with paused() as (crashed, ctx, _, request):
        for number in range(300):
            await ctx.add_message(user(str(number)))
        assert await crashed.store.load_snapshot("s", "request_view") is None
        engine = Engine(crashed.store)
        again = await engine.session("s", **OTHER)
        (row,) = (await engine.audit("s")).compactions
        assert row.outcome == "failed"
        assert "ended before it was done" in str(row.error)
        assert (await again.get_messages_for_request())[-1] == user("299")
        request.cancel()  # as after a crash, nothing of it runs any more


async def test_a_session_opened_elsewhere_meanwhile_does_not_give_a_compaction_two_ends() -> None:
    async with paused() as (engine, _, summarizer, request):
        await Engine(engine.store).session("s", **OTHER)
        summarizer.may_answer.set()
        assert refusal(await request) is None
        records = [one async for one in engine.records("s")]
    spans = [one.span_id for one in records if one.type == "context:post_compact"]
    assert len(spans) == len(set(spans))


async def test_two_requests_at_once_end_in_one_summary_each_of_its_own_compaction() -> None:
    async with paused() as (engine, ctx, summarizer, request):
        other = asyncio.create_task(ctx.get_messages_for_request())
        for _ in range(50):
            await asyncio.sleep(0)
        summarizer.may_answer.set()
        assert await request == await other
        assert await outcomes(engine) == ["applied", "skipped"]
        found = await names(engine)
        assert found.count("context:pre_compact") == found.count("context:post_compact") == 2


class Named(Scripted):
    """A summarizer that says which model it calls."""

    model, provider = "small-1", "example"


@pytest.mark.parametrize(
    ("summarizer", "known"),
    [
        (Scripted(ModelAnswer("Fine.", model="m", provider="acme")), ("chat m", None, "m", "acme")),
        (Named(ModelAnswer("Fine.")), ("chat small-1", "small-1", "small-1", "example")),
        (Named(ModelAnswer("Fine.", provider="b")), ("chat small-1", "small-1", "small-1", "b")),
        (Named(ModelAnswer("Fine.", 5, 5)), ("chat small-1", "small-1", "small-1", "example")),  # type: ignore[arg-type]
        (Named(OSError("gone")), ("chat small-1", "small-1", None, "example")),
    ],
)
async def test_the_chat_of_a_summarizer_has_its_model_and_provider(
    summarizer: Scripted, known: tuple[str | None, ...]
) -> None:
    async with due(summarizer, 8) as (engine, ctx):
        await ctx.compact()
        records = [record async for record in engine.records("s")]
    (chat,) = [one for one in spans(records) if one.name.startswith("chat")]
    names = ("gen_ai.request.model", "gen_ai.response.model", "gen_ai.provider.name")
    assert (chat.name, *[chat.attributes.get(name) for name in names]) == known
