"""What providers report, made into a scale for our own counts."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.adapters.kit import HostSession
from eventctx.engine import Engine
from eventctx.errors import CompactionRefused, ContextOverflow
from eventctx.log.store import EventStore
from eventctx.log.usage import Usage
from eventctx.messages import calibration
from eventctx.messages.calibration import UNCALIBRATED, Calibration, RequestSize, Scale
from eventctx.messages.tokens import FAMILIES, family_of
from eventctx.projections.view import request_view
from eventctx.queries.requests import fold
from eventctx.session.repository import load
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.policies.given import one_session
from tests.sessions import USER, tool_round, user

factors = st.floats(0.5, 2.0), st.floats(0.1, 0.5)
first, least = (one.map(lambda x: round(x, 4)) for one in factors)
scales = st.builds(Scale, first, st.integers(-50_000, 50_000), least)


OPUS, HAIKU = "claude-opus-4-5", "claude-haiku-4-5"


def reported(
    state: Calibration,
    position: int,
    size: int,
    prompt: int,
    model: str = OPUS,
    *,
    growing: bool = True,
    budget: int | None = None,
) -> Calibration:
    state = calibration.note_prepared(state, RequestSize(position, size, growing, budget))
    return calibration.note_reported(state, position, prompt, model)


def told(steps: list[tuple[int, int]], budget: int | None = 200_000) -> Calibration:
    state = calibration.note_called(UNCALIBRATED, OPUS)
    for position, (size, prompt) in enumerate(steps):
        state = reported(state, position, size, prompt, budget=budget)
    return state


@given(scale=scales, tokens=st.integers(0, 300_000))
def test_the_room_is_the_largest_count_that_takes_no_more_and_a_larger_view_never_counts_less(
    scale: Scale, tokens: int
) -> None:
    room = scale.room(tokens)
    assert room < 0 or scale.tokens(room) <= tokens
    assert scale.tokens(max(0, room) + 1) > tokens or room < 0
    assert scale.tokens(tokens + 1) >= scale.tokens(tokens)


NO_PROMPTS = (0, -5, 2, 19_999, 400_001, 10**12)


@pytest.mark.parametrize(
    ("steps", "beside"),
    [([], 700), ([(10_000, 40_000)], 30_000), *([[(40_000, one)], 700] for one in NO_PROMPTS)],
)
def test_a_report_that_can_be_a_whole_prompt_tells_how_much_is_sent_beside_the_messages(
    steps: list[tuple[int, int]], beside: int
) -> None:
    assert calibration.scale(told(steps), 700) == Scale(1.0, beside)


def test_the_scale_is_exact_at_the_last_report_and_no_small_view_is_free() -> None:
    steps = [(1_000, 20_000), (9_000, 31_000), (30_000, 52_000), (36_000, 58_500)]
    assert calibration.scale(told(steps)).tokens(36_000) in (58_500, 58_501)
    scale = calibration.scale(told([(50_000, 40_000)]))
    assert scale.tokens(50_000) == 40_000
    assert scale.tokens(55_000) == 45_000
    assert scale.tokens(1_000) == 800


@settings(max_examples=some(15, 100))
@given(factor=st.floats(0.6, 1.8), beside=st.integers(0, 40_000), seed=st.integers(0, 99))
def test_the_factor_of_a_model_is_learnt_from_growth(factor: float, beside: int, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - no secret
    size, prompt, steps = 0, float(beside), []
    for _ in range(200):
        grown = draw.randrange(100, 4_000)
        size += grown
        prompt += grown * factor * draw.uniform(0.8, 1.2)
        steps.append((size, round(prompt)))
    found = calibration.scale(told(steps, budget=10**9))
    assert found.factor == pytest.approx(factor, rel=0.08)


def test_models_are_learnt_apart_and_growth_across_a_compaction_teaches_nothing() -> None:
    state = reported(told([(10_000, 12_000)]), 7, 10_000, 25_000, HAIKU)
    assert calibration.scale(state).reserve == 15_000
    assert calibration.scale(calibration.note_called(state, OPUS)).reserve == 2_000
    state = reported(told([(50_000, 60_000)]), 1, 20_000, 22_000, HAIKU, growing=False)
    assert calibration.scale(reported(state, 2, 70_000, 118_000)).factor == 1.0


OF_FAMILIES: dict[str, tuple[str | None, ...]] = {
    "claude": ("claude-opus-4-5-20251101", "us.anthropic.claude-3-5-sonnet-20241022-v2:0"),
    "claude-4.7": ("claude-opus-4-8", "opus"),
    "gpt-tiles": ("gpt-5.2-codex", "o3-mini"),
    "other": ("deepseek-r1-distill-qwen-32b", "llama-4", "", None),
}
OF_FAMILIES |= {"gpt": ("gpt-5.5",), "gpt-nano": ("gpt-4.1-nano",), "gpt-mini": ("gpt-5-mini",)}
OF_FAMILIES |= {"gpt-4o-mini": ("openai/gpt-4o-mini-2024-07-18",)}
OF_FAMILIES |= {
    "gemini": ("openrouter/google/gemini-3-pro",),
    "deepseek": ("deepseek/deepseek-chat",),
}
OF_FAMILIES["gemini-2.5"] = ("google/gemini-2.5-flash",)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_belongs_to_a_family_in_any_providers_spelling(family: str) -> None:
    assert {family_of(model) for model in OF_FAMILIES[family]} == {family}


async def state_of(store: EventStore) -> Any:
    return await fold(store, "s", request_view)


async def talked(engine: Engine, model: str, rounds: int, **options: Any) -> eventctx.Context:
    """A session whose provider always counts 5,000 tokens beside the messages, and 1.3 of ours."""
    ctx = await engine.session("s", **options)
    await ctx.add_message(USER)
    async with ctx.turn() as turn:
        for number in range(rounds):
            async with turn.iteration() as iteration:
                assert await ctx.get_messages_for_request(model=model)
                async with iteration.provider_call(model) as call:
                    size = (await state_of(engine.store)).layout.tokens
                    await call.usage(5_000 + size * 13 // 10)
                await ctx.add_messages(tool_round(number, 2_000))
    return ctx


@pytest.mark.parametrize("model", [OPUS, "gpt-5"])
async def test_a_budget_holds_for_the_prompt_as_a_provider_counts_it_also_replayed(
    model: str,
) -> None:
    store = MemoryStore()
    engine = Engine(store)
    ctx = await talked(engine, model, 60, max_tokens=20_000)
    rows = (await engine.audit("s")).requests
    assert any(row.breaks == ("compaction",) for row in rows)
    for row in rows[2:]:
        assert row.tokens <= 20_000
        assert row.reported and row.reported <= 20_000 * 1.02
    state, loaded = await state_of(store), await load(store, "s")
    assert loaded and loaded.view.calibration == state.calibration
    scale = calibration.scale(state.calibration)
    again = await Engine(store).session("s", max_tokens=20_000)
    tokens = scale.tokens(state.layout.tokens)
    assert await again.get_token_count() == await ctx.get_token_count() == tokens


async def test_a_request_is_counted_by_the_rates_of_the_model_that_it_goes_to() -> None:
    store = MemoryStore()
    engine = Engine(store)
    ctx = await engine.session("s", max_tokens=3_000)
    await ctx.add_message(USER)
    for number in range(30):
        await ctx.add_messages(tool_round(number, 600))
    await ctx.get_messages_for_request(model="gpt-5")
    audit = await engine.audit("s")
    (row,), (compaction,) = audit.requests, audit.compactions
    assert compaction.tokens_after == row.tokens == await ctx.get_token_count() <= 3_000
    loaded, folded = await load(store, "s"), await state_of(store)
    assert loaded and loaded.view.size_after_compaction == folded.size_after_compaction
    assert await (await Engine(store).session("s")).get_token_count() == row.tokens


async def test_a_model_named_late_does_not_take_what_came_since_for_part_of_its_prompt() -> None:
    counts = []
    for named in (OPUS, None):
        async with one_session() as (_, ctx):
            await ctx.add_message(user("w" * 80_000))
            async with ctx.turn() as turn, turn.iteration() as iteration:
                await ctx.get_messages_for_request()
                async with iteration.provider_call(named) as call:
                    call.model = OPUS
                    await ctx.add_message(user("r" * 60_000))
                    await call.usage(23_000)
            counts.append(await ctx.get_token_count())
    assert counts[1] == pytest.approx(counts[0], rel=0.01)


def test_a_report_teaches_once_of_its_own_request_and_a_list_told_later_takes_it_back() -> None:
    state = told([(10_000, 12_000), (12_000, 15_000)])
    for position, prompt in enumerate((12_000, 15_000)):
        assert calibration.note_reported(state, position, prompt, OPUS) == state
    assert calibration.scale(calibration.note_sent(state, 1, None)) == Scale(1.0, 0)
    assert calibration.note_sent(state, 0, None).readings == state.readings
    state = calibration.note_called(UNCALIBRATED, OPUS)
    state = calibration.note_prepared(state, RequestSize(0, 10_000, True, None))
    state = calibration.note_sent(state, 0, 500)
    state = calibration.note_prepared(state, RequestSize(1, 40_000, True, None))
    state = calibration.note_reported(state, 0, 14_500, OPUS)
    assert calibration.scale(state) == Scale(1.0, 4_000)


async def test_tool_definitions_count_until_a_provider_told_the_whole() -> None:
    tools = [{"name": "read", "description": "d" * 8_000}]
    async with one_session(max_tokens=2_000) as (_, ctx):
        await ctx.add_message(USER)
        with pytest.raises(ContextOverflow, match="system prompt and tools"):
            await ctx.get_messages_for_request(tools=tools)
    async with one_session() as (engine, ctx):
        await ctx.add_message(USER)
        await ctx.get_messages_for_request()
        await ctx.get_messages_for_request(tools=tools)
        plain, with_tools = (await engine.audit("s")).requests
        assert with_tools.tokens - plain.tokens == pytest.approx(8_000 / 3.1, rel=0.05)


# -- after an imported compaction -----------------------------------------------------------------


def compacted_at(position: int, *steps: tuple[int, int], budget: int | None = 200_000) -> Any:
    return calibration.note_compacted(told(list(steps), budget), position)


def test_what_stands_beside_few_messages_stands_beside_the_summary_but_nothing_older() -> None:
    # Counted 40 % too much on the way: the line through the last report alone is far below 0.
    state = compacted_at(3, (100, 28_000), (100_000, 99_000), (224_000, 154_000))
    assert calibration.scale(state).tokens(3_300) == pytest.approx(30_000, rel=0.05)
    assert calibration.scale(state).tokens(224_000) == pytest.approx(154_000, rel=0.01)
    state = reported(state, 4, 4_000, 45_000, growing=False)
    assert calibration.scale(state).tokens(4_000) == 45_000
    assert state.readings[-1].base.size == 4_000
    steps = [(100, 114_000), (41_000, 155_000)]
    assert calibration.scale(compacted_at(2, *steps, budget=None)).tokens(3_000) < 70_000
    # A live session's budget bounds it already, and it may have that many tools.
    live = calibration.scale(compacted_at(2, *steps))
    assert live.tokens(3_000) == pytest.approx(117_000, rel=0.01)


@given(
    first=st.tuples(st.integers(0, 30_000), st.integers(1, 90_000)),
    last=st.tuples(st.integers(1, 250_000), st.integers(1, 250_000)),
    count=st.integers(0, 300_000),
)
def test_no_report_makes_a_view_behind_a_compaction_free_or_smaller_than_a_smaller_one(
    first: tuple[int, int], last: tuple[int, int], count: int
) -> None:
    scale = calibration.scale(compacted_at(2, first, last))
    assert 0 <= scale.tokens(count) <= scale.tokens(count + 1)
    assert scale.tokens(scale.room(50_000)) <= 50_000


# -- another list than the view, and reports that cannot be believed -------------------------------

ASKED = user("Go on.")
ANSWER = {"role": "assistant", "content": "words and words " * 150}


async def held(engine: Engine, rounds: int = 4, **options: Any) -> tuple[HostSession, list[Any]]:
    """A host's session after some rounds, each reported with 50 tokens beside the messages."""
    host = HostSession(await engine.session("s", reserve_tokens=0, **options))
    rows: list[Any] = []
    for _ in range(rounds):
        await one_round(host, rows)
    return host, rows


async def one_round(
    host: HostSession,
    rows: list[Any],
    *,
    sends: Callable[[list[Any]], list[Any]] | None = None,
    prompt: int | None = None,
) -> None:
    """One turn. ``sends`` makes the host's own list of the view; ``prompt`` is reported for it."""
    await host.turns.turn_began()
    rows.append(ASKED)
    await host.mirror(rows, with_request=True)
    await host.turns.iteration_began("p", "m")
    view = await host.prepare(model="m")
    sent = view if sends is None else sends(view)
    await host.sent(view, sent)
    real = 50 + sum(len(str(row)) for row in sent) // 3 if prompt is None else prompt
    await host.turns.model_known(usage=Usage(real, 5))
    await host.turns.model_answered()
    rows.append(ANSWER)
    await host.answered([ANSWER])
    await host.turns.turn_ended()


@pytest.mark.parametrize(
    ("sends", "prompt"),
    [(lambda view: [user("old " + "x " * 20_000), *view], 16_000), (lambda view: view[-1:], 60)],
)
async def test_usage_of_another_list_that_a_host_sent_teaches_nothing_of_the_view(
    sends: Callable[[list[Any]], list[Any]], prompt: int
) -> None:
    async with eventctx.open() as engine:
        host, rows = await held(engine, max_tokens=12_000)
        before = (await state_of(engine.store)).calibration.readings
        await one_round(host, rows, sends=sends, prompt=prompt)
        assert (await state_of(engine.store)).calibration.readings == before
        await one_round(host, rows)
        assert (await engine.audit("s")).compactions == ()


async def test_a_number_of_missing_messages_does_not_say_what_was_sent() -> None:
    async with one_session() as (engine, ctx):
        await ctx.add_messages([ASKED, ANSWER, ASKED])
        async with ctx.turn() as turn, turn.iteration() as iteration:
            await ctx.get_messages_for_request(model="m")
            position = [one async for one in engine.records("s")][-1].position
            async with iteration.provider_call("m") as call:
                await ctx.record_sent(position, 1, [], missing=2)
                await call.usage(1_200)
        assert (await state_of(engine.store)).calibration.readings == ()


async def test_what_a_host_adds_to_each_request_is_not_taken_for_the_views() -> None:
    reminder = user("<system-reminder>" + "now " * 300)
    async with eventctx.open() as engine:
        host, rows = await held(engine, 0)
        for _ in range(12):
            await one_round(host, rows, sends=lambda view: [*view, reminder])
        for row in (await engine.audit("s")).requests[8:]:
            missing = (row.reported or 0) - len(str(reminder)) // 3
            assert row.tokens == pytest.approx(missing, rel=0.03)


REPORTS = st.one_of(st.none(), st.integers(0, 30), st.integers(0, 30_000), st.just(10**7))
LISTS = st.sampled_from(
    (None, lambda view: view[-1:], lambda view: view * 2, lambda view: [*view, *[ANSWER] * 3])
)


@settings(max_examples=some(15, 60))
@given(st.lists(st.tuples(REPORTS, LISTS), min_size=1, max_size=10), st.booleans())
async def test_no_report_stops_a_session_whose_floor_fits_as_the_estimator_counts(
    steps: list[tuple[int | None, Any]], at_once: bool
) -> None:
    """On ``raise``, a request that does not fit raises; each list and each report may be absurd."""
    store = MemoryStore()
    host = HostSession(await Engine(store).session("s", max_tokens=6_000, on_overflow="raise"))
    rows: list[Any] = [user("word " * 900), ANSWER] if at_once else []
    for prompt, sends in steps:
        await one_round(host, rows, prompt=prompt, sends=sends)
    with suppress(CompactionRefused):  # what is left is too little to be of use, but it fits
        await host.context.compact(budget=3_000)
    loaded, folded = await load(store, "s"), await state_of(store)
    assert loaded and loaded.view.calibration == folded.calibration


async def test_a_report_that_leaves_no_room_does_not_take_the_history_away() -> None:
    async with eventctx.open() as engine:
        host, rows = await held(engine, max_tokens=12_000, on_overflow="raise")
        for prompt in (23_000, None, None):
            await one_round(host, rows, prompt=prompt)
        audit = await engine.audit("s")
        last = audit.requests[-1]
        assert (audit.compactions, last.breaks) == ((), ())
        assert last.tokens == pytest.approx(last.reported, rel=0.2)
