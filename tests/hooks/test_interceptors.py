"""Interceptors of a compaction may keep messages or object; their verdicts are recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, UnknownEventName
from eventctx.hooks.interceptors import Interceptors
from eventctx.log.codec import decode_event
from eventctx.policies.advisers import CompactionAsked, Verdict
from tests.loop_time import LIMIT, hang_past_the_limit
from tests.sessions import filled

PRE = "context:pre_compact"


async def pre_compacts(engine: Engine) -> list[Any]:
    return [decode_event(record) async for record in engine.records("s") if record.type == PRE]


async def test_an_interceptor_keeps_messages_through_one_compaction() -> None:
    async with eventctx.open() as engine:
        engine.intercept(PRE, lambda about: Verdict(pins=about.numbers[3:5]))
        ctx = await filled(engine, max_tokens=4_000, policy="simple")
        view = await ctx.get_messages_for_request()
        messages = await ctx.get_messages()
        assert [messages[at] in view for at in (3, 4, 7)] == [True, True, False]
        (began,) = await pre_compacts(engine)
        assert began.pins == (3, 4)


async def test_a_veto_holds_below_the_budget_and_is_not_asked_for_at_every_request() -> None:
    seen: list[CompactionAsked] = []

    async def object_(about: CompactionAsked) -> Verdict:
        seen.append(about)
        return Verdict(veto="a demo is running")

    async with eventctx.open() as engine:
        engine.intercept(PRE, object_)
        ctx = await filled(engine, 20)
        size = await ctx.get_token_count()
        for _ in range(5):
            assert len(await ctx.get_messages_for_request(round(size / 0.95))) == 41
        (row,) = (await engine.audit("s")).compactions
        told = ("skipped", "threshold", "a demo is running")
        assert (row.outcome, row.trigger, row.error) == told
        assert len(seen) == 1


async def test_a_veto_is_overruled_where_the_request_would_not_fit() -> None:
    async with eventctx.open() as engine:
        engine.intercept(PRE, lambda compaction: Verdict(veto="never"))
        ctx = await filled(engine, max_tokens=4_000)
        assert len(await ctx.get_messages_for_request()) < 61
        (row,) = (await engine.audit("s")).compactions
        assert (row.outcome, row.trigger) == ("applied", "budget")
        (began,) = await pre_compacts(engine)
        assert began.veto == "never"


async def test_a_veto_is_overruled_where_the_view_outgrew_the_budget_meanwhile() -> None:
    async with eventctx.open() as engine:
        ctx = await filled(engine, 20)
        budget = round(await ctx.get_token_count() / 0.95)

        async def slow(about: CompactionAsked) -> Verdict:
            await ctx.add_message({"role": "user", "content": "x" * 2_000})
            return Verdict(veto="not now")

        engine.intercept(PRE, slow)
        await ctx.get_messages_for_request(budget)
        (row,) = (await engine.audit("s")).requests
        assert row.tokens <= budget


async def test_interceptors_are_asked_by_priority_and_the_first_veto_counts() -> None:
    order: list[str] = []

    def says(name: str, veto: bool) -> Any:
        def answer(compaction: CompactionAsked) -> Verdict | None:
            order.append(name)
            return Verdict(veto=name) if veto else None

        return answer

    async with eventctx.open() as engine:
        engine.intercept(PRE, says("late", True), priority=5)
        engine.intercept(PRE, says("early", True), priority=-1)
        stop = engine.intercept(PRE, says("gone", True))
        engine.intercept(PRE, says("none", False))
        stop()
        result = await (await filled(engine)).compact()
        assert order == ["early", "none", "late"]
        assert (result, result.outcome, result.error) == (0, "skipped", "early")


NONSENSE: list[Any] = ["yes", Verdict(pins=(999,)), Verdict(pins=(True,)), ValueError("a bug")]


@pytest.mark.parametrize("answer", [*NONSENSE, Verdict(veto=5), "never"])  # type: ignore[arg-type]
async def test_an_interceptor_that_fails_or_never_answers_has_no_say(answer: Any) -> None:
    async def wrong(compaction: CompactionAsked) -> Any:
        if answer == "never":
            await hang_past_the_limit()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with eventctx.open() as engine:
        engine.interceptors = Interceptors(timeout=LIMIT)
        engine.interceptors.on(PRE, wrong)
        ctx = await filled(engine)
        assert (await ctx.compact()).outcome == "applied"
        assert sum(engine.interceptors.errors.values()) == 1


def test_only_events_that_can_be_intercepted_are_and_a_misspelt_name_is_refused() -> None:
    interceptors = Interceptors()
    with pytest.raises(UnknownEventName, match=f"did you mean '{PRE}'"):
        interceptors.on("context:pre_compct", lambda compaction: None)
    with pytest.raises(UnknownEventName, match="expected one of"):
        interceptors.on("tool:pre", lambda compaction: None)
    with pytest.raises(InvalidSetting, match="expected a function"):
        interceptors.on(PRE, "veto")  # type: ignore[arg-type]


async def test_intercept_is_a_decorator_too_and_leaves_the_function_as_it_is() -> None:
    async with eventctx.open() as engine:

        @engine.intercept(PRE, priority=1)
        async def object_(compaction: CompactionAsked) -> Verdict:
            return Verdict(veto="later")

        @engine.intercept(PRE)
        def first(compaction: CompactionAsked) -> Verdict:
            return Verdict(veto="sooner")

        ctx = await filled(engine)
        result = await ctx.compact()
        assert (result.outcome, result.error) == ("skipped", "sooner")
        assert first(None) == Verdict(veto="sooner")  # type: ignore[arg-type]
        assert asyncio.iscoroutinefunction(object_)
