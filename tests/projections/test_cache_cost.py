"""What a compaction costs in a provider's cache: predicted from the log, and held to the reports.

The provider here serves from its cache what a request has in common with the one before, byte for
byte, and counts a token for each four characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import eventctx
from eventctx.engine import Engine
from eventctx.projections.cache_cost import CacheCost, predict
from eventctx.projections.timeline.cache_costs import cache_costs, predict_plan
from eventctx.projections.timeline.views import ShownView
from eventctx.projections.view.series import Series
from eventctx.queries import spans
from eventctx.queries.key_frames import timeline_at
from tests.sessions import tool_round, user, with_frames

COMPACTED = "eventctx.compaction.cache.held"
SOME = st.integers(0, 200_000)
TASK = user("Add up the ledger. " * 150)


class CachingProvider:
    """Counts prompts, and what of them it has seen in the request before; it forgets if told to."""

    def __init__(self) -> None:
        self._seen: list[str] = []

    def usage(self, messages: list[dict[str, Any]], *, forget: bool = False) -> tuple[int, int]:
        sent = [json.dumps(one) for one in messages]
        same = 0
        for one, other in zip([] if forget else self._seen, sent, strict=False):
            if one != other:
                break
            same += 1
        self._seen = sent
        return sum(map(len, sent)) // 4, sum(map(len, sent[:same])) // 4


async def talk(
    engine: Engine,
    rounds: int,
    *,
    size: int = 2_000,
    cold: int | None = None,
    caches: bool = True,
    unreported: int | None = None,
    **options: Any,
) -> eventctx.Context:
    """A session of tool rounds, with a request before each; before ``cold`` the cache is lost."""
    provider = CachingProvider()
    ctx = await engine.session("s", **{"max_tokens": 6_000, **options})
    await ctx.add_message(TASK)
    async with ctx.turn("t") as turn:
        for number in range(rounds):
            async with turn.iteration() as iteration:
                messages = await ctx.get_messages_for_request()
                prompt, read = provider.usage(messages, forget=number == cold)
                async with iteration.provider_call("claude-opus-4-5", "anthropic") as call:
                    cached = {"cache_read": read, "cache_write": prompt - read} if caches else {}
                    if number != unreported:
                        await call.usage(prompt, 5, **cached)
            await ctx.add_messages(tool_round(number, size))
    return ctx


async def costs_of(engine: Engine) -> list[CacheCost]:
    return list(cache_costs(await timeline_at(engine.store, "s")).values())


async def costs(rounds: int, **options: Any) -> list[CacheCost]:
    """The costs of such a session's compactions."""
    async with eventctx.open() as engine:
        await talk(engine, rounds, **options)
        return await costs_of(engine)


@given(held=SOME, kept=SOME, saved=SOME, room=SOME, growth=st.integers(0, 10_000))
def test_what_is_kept_and_what_is_given_up_are_all_that_the_cache_held(
    held: int, kept: int, saved: int, room: int, growth: int
) -> None:
    one = predict(held=held, kept=kept, saved=saved, room=room, growth=growth)
    assert one.kept + one.given_up == held
    assert 0 <= one.rewritten <= one.given_up
    assert one.rewritten == max(0, held - one.kept - saved)
    assert (one.expected is None) == (growth == 0)
    if one.expected is not None:
        assert (one.expected - 1) * growth <= room


@settings(max_examples=10, deadline=None)
@given(rounds=st.integers(8, 40), size=st.integers(400, 4_000))
async def test_the_prediction_is_what_a_provider_with_a_cache_reports(
    rounds: int, size: int
) -> None:
    for one in await costs(rounds, size=size):
        told = one.reported
        assert told is not None and told.misses == 0
        assert one.kept > 500
        assert abs(told.read - one.kept) <= 0.05 * one.held
        assert told.read + told.write <= 6_000


async def test_the_expected_requests_are_those_that_a_steady_session_makes() -> None:
    *over, last = await costs(60)
    assert len(over) >= 2
    for one in over:
        assert one.reported and one.reported.over and one.expected is not None
        assert abs(one.expected - one.reported.requests) <= 2
    assert last.reported and not last.reported.over


async def test_a_cache_that_was_lost_later_is_a_miss_and_changes_no_prediction() -> None:
    (warm, *_) = await costs(12)
    (*_, lost) = [one for one in await costs(12, cold=11) if one.reported]
    assert warm.reported and lost.reported
    assert (warm.reported.misses, lost.reported.misses) == (0, 1)
    assert lost.reported.missed >= 2_000
    assert (lost.kept, lost.saved, lost.expected) == (warm.kept, warm.saved, warm.expected)


async def test_without_reports_of_a_cache_there_is_a_prediction_alone() -> None:
    found = await costs(12, caches=False)
    assert found and all(one.reported is None and one.given_up > 0 for one in found)


async def test_a_compaction_by_hand_has_its_prediction_before_the_next_request() -> None:
    async with eventctx.open() as engine:
        ctx = await talk(engine, 8, max_tokens=200_000, size=8_000)
        await ctx.compact(reason="before a new task")
        (before,) = await costs_of(engine)
        await ctx.get_messages_for_request()
        (after,) = await costs_of(engine)
    assert before == after
    assert before.given_up > before.rewritten >= 0


@pytest.mark.parametrize("policy", ["workset", "ladder", "simple"])
async def test_a_dry_run_is_predicted_to_cost_what_the_compaction_then_does(policy: str) -> None:
    async with eventctx.open() as engine:
        ctx = await talk(engine, 12, max_tokens=20_000, size=5_000, policy=policy)
        would = await engine.dry_run("s", policy=policy, max_tokens=20_000)
        assert would.plan is not None
        sizes = {"before": would.before_tokens, "after": would.after_tokens, "threshold": 18_400}
        found = predict_plan(await timeline_at(engine.store, "s"), would.plan, **sizes)
        assert await costs_of(engine) == []
        await ctx.compact()
        (made,) = await costs_of(engine)
    assert found == made
    assert found.given_up > found.rewritten > 0


@pytest.mark.parametrize("every", [3, 10])
async def test_key_frames_change_no_cost(every: int) -> None:
    async with eventctx.open() as engine:
        with_frames(engine.store, every=every)
        await talk(engine, 30)
        assert await costs_of(engine) == await costs(30)


async def test_each_view_is_read_once_however_many_compactions_there_were() -> None:
    async with eventctx.open() as engine:
        await talk(engine, 60)
        state = await timeline_at(engine.store, "s")
    shown = CountsReads(state.views.shown)
    counted = replace(state, views=state.views._replace(shown=Series.backed_by(shown)))
    assert len(cache_costs(counted)) > 3
    assert shown.reads == len(shown)


class CountsReads(list[ShownView]):
    """Views that count how many of them were read."""

    reads = 0

    def first(self, count: int) -> list[ShownView]:
        return self[:count]

    def __iter__(self) -> Iterator[ShownView]:
        for one in super().__iter__():
            self.reads += 1
            yield one

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)


async def test_the_spans_say_what_was_expected_and_what_the_cache_gave_up() -> None:
    async with eventctx.open() as engine:
        await talk(engine, 30)
        predicted = cache_costs(await timeline_at(engine.store, "s"))
        found = [one.attributes async for one in spans.spans(engine.store, "s")]
    of_compactions = {one["eventctx.compaction.id"]: one for one in found if COMPACTED in one}
    assert len(predicted) >= 2
    for position, cost in predicted.items():
        one = of_compactions[position]
        assert one["eventctx.compaction.cache.held"] == cost.held
        assert one["eventctx.compaction.expected_requests"] == cost.expected
    read, given_up = "gen_ai.usage.cache_read.input_tokens", "eventctx.request.cache_given_up"
    calls = [(one[read], one[given_up]) for one in found if given_up in one]
    reads = [(cost.held, cost.reported.read) for cost in predicted.values() if cost.reported]
    assert len(reads) == len(predicted)
    assert calls == [(one, held - one) for held, one in reads]


async def test_a_call_after_one_that_was_not_reported_is_not_taken_for_the_first() -> None:
    async with eventctx.open() as engine:
        await talk(engine, 30)
        audit = await engine.audit("s")
        first = audit.compactions[0].position
        number = sum(row.position < first for row in audit.requests)
    async with eventctx.open() as engine:
        await talk(engine, number + 3, unreported=number)
        (one, *_) = await costs_of(engine)
        found = [one.attributes async for one in spans.spans(engine.store, "s")]
    assert one.reported is None
    assert not any("eventctx.request.cache_given_up" in one for one in found)
