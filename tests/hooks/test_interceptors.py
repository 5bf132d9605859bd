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


async def pre_compacts(engine: Engine) -> list[Any]:
    return [
        decode_event(record)
        async for record in engine.records("s")
        if record.type == "context:pre_compact"
    ]


async def test_an_interceptor_keeps_messages_through_one_compaction() -> None:
    async with eventctx.open() as engine:
        engine.intercept("context:pre_compact", lambda about: Verdict(pins=about.numbers[3:5]))
        ctx = await filled(engine, max_tokens=4_000, policy="simple")
        view = await ctx.get_messages_for_request()
        messages = await ctx.get_messages()
        assert messages[3] in view
        assert messages[4] in view
        assert messages[7] not in view
        (began,) = await pre_compacts(engine)
        assert began.pins == (3, 4)


async def test_a_veto_holds_below_the_budget_and_is_not_asked_for_at_every_request() -> None:
    seen: list[CompactionAsked] = []

    async def object_(about: CompactionAsked) -> Verdict:
        seen.append(about)
        return Verdict(veto="a demo is running")

    async with eventctx.open() as engine:
        engine.intercept("context:pre_compact", object_)
        ctx = await filled(engine, 20)
        size = await ctx.get_token_count()
        for _ in range(5):
            assert len(await ctx.get_messages_for_request(round(size / 0.95))) == 41
        (row,) = (await engine.audit("s")).compactions
        assert (row.outcome, row.trigger, row.error) == (
            "skipped",
            "threshold",
            "a demo is running",
        )
        assert len(seen) == 1
        assert seen[0].event.tokens == size


async def test_a_veto_is_overruled_where_the_request_would_not_fit() -> None:
    async with eventctx.open() as engine:
        engine.intercept("context:pre_compact", lambda compaction: Verdict(veto="never"))
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

        engine.intercept("context:pre_compact", slow)
        await ctx.get_messages_for_request(budget)
        (row,) = (await engine.audit("s")).requests
        assert row.tokens <= budget


async def test_interceptors_are_asked_by_priority_and_the_first_veto_counts() -> None:
    order: list[str] = []

    def says(name: str, verdict: Verdict | None) -> Any:
        def answer(compaction: CompactionAsked) -> Verdict | None:
            order.append(name)
            return verdict

        return answer

    async with eventctx.open() as engine:
        engine.intercept("context:pre_compact", says("late", Verdict(veto="late")), priority=5)
        engine.intercept("context:pre_compact", says("early", Verdict(veto="early")), priority=-1)
        stop = engine.intercept("context:pre_compact", says("gone", Verdict(veto="gone")))
        engine.intercept("context:pre_compact", says("none", None))
        stop()
        ctx = await filled(engine)
        result = await ctx.compact()
        assert order == ["early", "none", "late"]
        assert (result, result.outcome, result.error) == (0, "skipped", "early")


@pytest.mark.parametrize(
    "answer",
    [
        "yes",
        Verdict(pins=(999,)),
        Verdict(pins=(True,)),
        Verdict(veto=5),  # type: ignore[arg-type]
        ValueError("a bug"),
    ],
)
async def test_an_interceptor_that_fails_or_talks_nonsense_has_no_say(answer: Any) -> None:
    def wrong(compaction: CompactionAsked) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with eventctx.open() as engine:
        engine.intercept("context:pre_compact", wrong)
        ctx = await filled(engine)
        assert (await ctx.compact()).outcome == "applied"
        assert sum(engine.interceptors.errors.values()) == 1


async def test_an_interceptor_that_never_answers_is_given_up() -> None:
    async def wait(compaction: CompactionAsked) -> Verdict:
        await hang_past_the_limit()
        return Verdict(veto="too late")

    interceptors = Interceptors(timeout=LIMIT)
    interceptors.on("context:pre_compact", wait)
    async with eventctx.open() as engine:
        engine.interceptors = interceptors
        ctx = await filled(engine)
        assert (await ctx.compact()).outcome == "applied"


def test_only_events_that_can_be_intercepted_are_and_a_misspelt_name_is_refused() -> None:
    interceptors = Interceptors()
    with pytest.raises(UnknownEventName, match="did you mean 'context:pre_compact'"):
        interceptors.on("context:pre_compct", lambda compaction: None)
    with pytest.raises(UnknownEventName, match="expected one of"):
        interceptors.on("tool:pre", lambda compaction: None)
    with pytest.raises(InvalidSetting, match="expected a function"):
        interceptors.on("context:pre_compact", "veto")  # type: ignore[arg-type]


async def test_intercept_is_a_decorator_too_and_leaves_the_function_as_it_is() -> None:
    async with eventctx.open() as engine:

        @engine.intercept("context:pre_compact", priority=1)
        async def object_(compaction: CompactionAsked) -> Verdict:
            return Verdict(veto="later")

        @engine.intercept("context:pre_compact")
        def first(compaction: CompactionAsked) -> Verdict:
            return Verdict(veto="sooner")

        ctx = await filled(engine)
        result = await ctx.compact()
        assert (result.outcome, result.error) == ("skipped", "sooner")
        assert first(None) == Verdict(veto="sooner")  # type: ignore[arg-type]
        assert asyncio.iscoroutinefunction(object_)
