"""What reported tokens cost: list prices, never a guess."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eventctx
from eventctx.errors import InvalidSetting
from eventctx.log.usage import Usage
from eventctx.projections.cache_cost import CacheCost, CacheOutcome
from eventctx.queries.audit import audit_answer, audit_of
from eventctx.queries.costs import (
    PriceTable,
    cost_of,
    prices_of_compaction,
    read_prices,
    session_costs,
)
from eventctx.stores.memory import MemoryStore
from tests.projections.test_cache_cost import talk
from tests.sessions import USER

TABLE = read_prices()


@pytest.mark.parametrize(
    ("given_name", "listed"),
    [
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("litellm_proxy/claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("claude-sonnet-4@20250514", "claude-sonnet-4"),
        ("google/gemini-3-pro-preview", "gemini-3-pro"),
        ("gpt-5.1-codex", "gpt-5.1-codex"),
        *((name, None) for name in (None, "", "gpt-5.1-unheard", "my-model", "opus", "gpt")),
        ("claude-opus-4-5-turbo", None),
    ],
)
def test_a_name_of_a_gateway_has_the_price_of_its_model_an_unknown_one_none(
    given_name: str | None, listed: str | None
) -> None:
    assert TABLE.of(given_name) == (TABLE.models[listed] if listed else None)


def test_cache_reads_writes_of_an_hour_and_long_prompts_have_rates_of_their_own() -> None:
    usage = Usage(prompt=100_000, output=1_000, cache_read=80_000, cache_write=15_000)
    cost = cost_of(TABLE.models["claude-opus-4-5"], usage)
    parts = (cost.input, cost.cache_read, cost.cache_write, cost.output)
    assert parts == (0.025, 0.04, 0.09375, 0.025)
    assert cost.total == pytest.approx(0.18375)
    for hour, written in ((4_000, (6_000 * 6.25 + 4_000 * 10) / 10**6), (90_000, 0.1)):
        usage = Usage(10_000, cache_write=10_000, cache_write_1h=hour)
        cost = cost_of(TABLE.models["claude-opus-4-6"], usage)
        assert cost.cache_write == pytest.approx(written)
    for prompt, paid in ((200_000, 0.6), (200_001, 1.200006)):
        cost = cost_of(TABLE.models["claude-sonnet-4-5"], Usage(prompt=prompt))
        assert cost.input == pytest.approx(paid)


def test_a_rate_that_is_missing_is_that_of_other_input(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text('{"date": "2026-01-01", "models": {"mine": {"input": 2, "output": 4}}}')
    price = read_prices(path).of("mine")
    assert price and cost_of(price, Usage(prompt=10**6, cache_read=10**6)).total == 2


@given(st.sampled_from(sorted(TABLE.models)), *[st.integers(0, 10**6) for _ in range(4)])
def test_a_cost_rises_with_tokens(
    model: str, plain: int, read: int, write: int, output: int
) -> None:
    price = TABLE.models[model]
    before = cost_of(price, Usage(plain + read + write, output, read, write))
    after = cost_of(price, Usage(plain + read + write + 1, output + 1, read, write))
    assert 0 <= before.total < after.total


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"models": {}}',
        '{"date": "2026-01-01", "models": {"a": {"input": -1, "output": 1}}}',
        '{"date": "2026-01-01", "models": {"a": {"input": 1, "output": 1, "typo": 1}}}',
    ],
)
def test_a_file_that_is_no_table_is_told_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(InvalidSetting, match=r"mine\.json"):
        read_prices(path)


async def played() -> eventctx.Engine:
    """An engine with a session of two turns: two priced calls, and one of an unknown model."""
    engine = eventctx.Engine(MemoryStore())
    ctx = await engine.session("s")
    for model, prompt in (("claude-opus-4-5", 10_000), ("claude-opus-4-5", 20_000), ("mine", 5)):
        async with ctx.turn(f"turn-{prompt}") as turn, turn.iteration() as iteration:
            await ctx.add_message(USER)
            await ctx.get_messages_for_request(model=model)
            async with iteration.provider_call(model, "p") as call:
                await call.usage(prompt, 100, cache_read=prompt // 2)
    return engine


async def test_requests_turns_and_the_session_have_costs_and_an_unknown_model_none() -> None:
    engine = await played()
    found = await session_costs(engine.store, "s", TABLE)
    audit, _ = await audit_of(engine.store, "s")
    answer = audit_answer(audit)
    costs = [row.cost.total if row.cost else None for row in answer.requests]
    assert costs == [pytest.approx(0.0300), pytest.approx(0.0575), None]
    assert [row.cost.total if row.cost else None for row in answer.turns] == costs
    assert found.calls and found.calls.total.total == pytest.approx(0.0875)
    assert found.calls.unpriced == {"mine": 1}
    assert answer.costs == found.calls
    await engine.close()


async def test_a_call_of_a_session_tells_what_it_wrote_for_an_hour() -> None:
    engine = eventctx.Engine(MemoryStore())
    ctx = await engine.session("s")
    written = {"ephemeral_5m_input_tokens": 60_000, "ephemeral_1h_input_tokens": 40_000}
    counts = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 100_000}
    answer = {"id": "a", "type": "message", "usage": {**counts, "cache_creation": written}}
    async with ctx.turn() as turn, turn.iteration() as iteration:
        async with iteration.provider_call("claude-opus-4-6", "p") as call:
            await call.usage_from(answer)
        async with iteration.provider_call("claude-opus-4-6", "p") as call:
            await call.usage(100_000, cache_write=100_000, cache_write_1h=100_000)
    calls = (await session_costs(engine.store, "s", TABLE)).calls
    assert calls and calls.total.cache_write == pytest.approx(0.06 * 6.25 + 0.04 * 10 + 0.1 * 10)
    await engine.close()


# -- compactions ---------------------------------------------------------------------------------

TOKENS = st.integers(0, 50_000)


@given(TOKENS, TOKENS, TOKENS, st.integers(1, 3_000), st.integers(1, 40), st.booleans())
def test_the_net_of_a_compaction_is_what_the_same_requests_cost_less_than_without_it(
    kept: int, rewritten: int, saved: int, growth: int, requests: int, hour: bool
) -> None:
    """Every request reads the one before it from the cache, and writes what is new in it."""
    price = TABLE.models["claude-opus-4-5"]

    def paid(sizes: list[tuple[int, int]]) -> float:
        usages = [Usage(read + new, 0, read, new, cache_write_1h=hour * new) for read, new in sizes]
        return sum([cost_of(price, usage).total for usage in usages])

    held = kept + rewritten + saved
    without = [(held + number * growth, growth) for number in range(requests)]
    later = [(held - saved + number * growth, growth) for number in range(1, requests)]
    compacted = [(kept, rewritten + growth), *later]
    made = CacheCost(held, kept, held - kept, rewritten, saved, growth, requests, hour=hour)
    found = prices_of_compaction(price, made, 0.25).predicted
    assert found and found.net == pytest.approx(paid(without) - paid(compacted) - 0.25)


def test_what_the_cache_served_less_than_predicted_was_written_again() -> None:
    price = TABLE.models["claude-opus-4-5"]
    made = CacheCost(90_000, 10_000, 80_000, 40_000, 40_000, 1_000, 40)
    told = CacheOutcome(12, True, 4_000, 50_000, 1, 6_000)
    found = prices_of_compaction(price, msgspec.structs.replace(made, reported=told), 0.0)
    assert found.predicted and found.reported
    assert (found.predicted.requests, found.reported.requests) == (40, 12)
    assert found.predicted.rewriting == pytest.approx(40_000 * 5.75 / 1e6)
    assert found.reported.rewriting == pytest.approx(46_000 * 5.75 / 1e6)
    assert found.reported.saving == pytest.approx(12 * 40_000 * 0.5 / 1e6)


async def test_an_audit_prices_a_compaction_whose_model_has_a_price() -> None:
    async with eventctx.open("memory://") as engine:
        await talk(engine, 12)
        found, _ = await audit_of(engine.store, "s")
        answer = audit_answer(found)
        (unpriced, _) = await audit_of(engine.store, "s", None, PriceTable("2026-01-01", {}))
    (row, *_) = [one for one in answer.compactions if one.outcome == "applied"]
    assert row.cache and row.price and row.price.predicted
    assert row.price.predicted.rewriting == pytest.approx(row.cache.rewritten * 5.75 / 1e6)
    assert (unpriced.caches, unpriced.prices) == (found.caches, {})
