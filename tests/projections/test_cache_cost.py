"""What requests and compactions cost: predicted from the log, and held to the reports.

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
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.record import Draft, place
from eventctx.projections import figures
from eventctx.projections.audit import Spread, estimate_errors
from eventctx.projections.cache_cost import CacheCost, predict
from eventctx.projections.figures import CompactionFigures, Figures
from eventctx.projections.timeline.cache_costs import cache_costs, predict_plan
from eventctx.projections.timeline.views import ShownView
from eventctx.projections.view.series import Series
from eventctx.queries import spans
from eventctx.queries.key_frames import timeline_at
from tests.sessions import compacted_by_hand, tool_round, user, with_frames

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
async def test_the_prediction_is_what_a_caching_provider_reports(rounds: int, size: int) -> None:
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


# -- figures: reports come first, estimates say so -----------------------------------------------


def prepared(tokens: int, **more: Any) -> events.RequestPrepared:
    return events.RequestPrepared(
        renderer=1, last_message=0, messages=1, tokens=tokens, digest="", **more
    )


def reconstructed(tokens: int, **more: Any) -> events.RequestPrepared:
    return prepared(tokens, reconstructed=True, **more)


def reported(at: int, prompt: int) -> events.UsageReported:
    return events.UsageReported(prompt=prompt, prepared=at)


def compacted(before: int, after: int, **more: Any) -> events.PostCompact:
    estimator = "by-kind-1"
    sizes = {"tokens_before": before, "tokens_after": after}
    return compacted_by_hand(**{"plan": None, "estimator": estimator, **sizes, **more})


ADDED = events.MessageAdded()


def figures_of(*log: events.Event) -> Figures:
    """The figures of a stream of these events, whose positions count from 0."""
    state = figures.initial()
    for position, event in enumerate(log):
        name, version, payload = encode_event(event)
        draft = Draft(bytes(16), name, version, 0, payload)
        state = figures.evolve(state, place(draft, "s", position, -1, b""))
    return figures.read(state)


def test_a_reported_prompt_is_the_figure_and_what_is_not_messages_was_sent_beside_them() -> None:
    one = figures.of_request(reconstructed(11), 25_882)
    assert (one.total, one.estimated, one.reported, one.estimate) == (25_882, False, 25_882, 11)
    assert (one.messages, one.beside) == (11, 25_871)


def test_without_a_report_the_figure_is_the_estimate_and_says_so() -> None:
    one = figures.of_request(prepared(1_500, reserve=500, factor=1.1), None)
    assert (one.total, one.estimated, one.reported) == (1_500, True, None)
    assert (one.messages, one.beside) == (1_000, 500)
    # What was sent beside a reconstructed request is not known then.
    one = figures.of_request(reconstructed(11), None)
    assert (one.total, one.messages, one.beside) == (11, 11, None)
    assert figures.of_request(prepared(11), None).beside == 0
    assert figures.of_request(reconstructed(511, reserve=500), None).beside == 500


def test_the_two_parts_of_a_request_always_add_up_and_none_is_below_zero() -> None:
    for one in (
        figures.of_request(prepared(1_869), 1_465),
        figures.of_request(prepared(900, reserve=-300), None),
        figures.of_request(prepared(900, reserve=-300), 700),
        figures.of_request(prepared(900, reserve=300), 100),
        figures.of_request(reconstructed(11), None, system=3_000, tools=20_000),
        figures.of_request(reconstructed(11), 25_882, system=3_000, tools=20_000),
    ):
        assert one.beside is not None and one.beside >= 0
        assert one.messages + one.beside == one.total


def test_a_report_is_shared_out_among_what_is_known_of_a_request() -> None:
    one = figures.of_request(reconstructed(1_000), 30_000, system=4_000, tools=15_000)
    assert (one.messages, one.system, one.tools) == (1_500, 6_000, 22_500)
    assert (one.total, one.beside) == (30_000, 28_500)
    # One that is far off leaves the parts as they were estimated.
    one = figures.of_request(reconstructed(1_000), 50, system=4_000, tools=15_000)
    assert (one.messages, one.system, one.tools, one.beside) == (1_000, 4_000, 15_000, 19_000)
    assert (one.total, one.estimated) == (50, False)


def test_a_compaction_has_the_figures_of_the_requests_around_it() -> None:
    found = figures_of(
        prepared(160_000),
        reported(0, 166_759),
        compacted(135_035, 4_036, tokens_recorded=167_094),
        prepared(30_487, plan=2, breaks=("compaction",)),
        reported(3, 33_960),
        prepared(35_000, plan=2),
        reported(5, 37_900),
    )
    one = found.compactions[2]
    assert one == CompactionFigures(166_759, False, 33_960, False, recorded=167_094)
    assert (one.before, one.after) == (found.requests[0].total, found.requests[3].total)
    assert one.taken_out == 166_759 - 33_960


def test_what_was_added_since_the_last_request_is_part_of_what_a_compaction_was_made_for() -> None:
    """A result of 10,000 tokens brings a request of 13,000 over a budget of 20,000."""
    log = [prepared(13_200), reported(0, 13_006), ADDED]
    own = figures_of(*log, compacted(23_240, 10_300, trigger="budget"))
    assert own.compactions == {3: CompactionFigures(23_240, True, 10_300, True)}
    imported = figures_of(*log, compacted(13_400, 10_300, trigger="imported"))
    assert imported.compactions == {3: CompactionFigures(13_006, False, 10_300, True)}


@pytest.mark.parametrize(
    "between",
    [
        events.MessagesSet(order=((0, 0),)),
        events.Cleared(messages=4),
        events.SessionFork(parent="s", at=2),
        compacted(950, 500),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_request_of_another_view_is_no_measure_of_a_compaction(between: events.Event) -> None:
    before = figures_of(prepared(900), reported(0, 1_000), between, compacted(700, 400))
    assert before.compactions[3] == CompactionFigures(700, True, 400, True)
    after = figures_of(compacted(700, 400), between, prepared(900, plan=0), reported(2, 1_000))
    assert after.compactions[0] == CompactionFigures(700, True, 400, True)


def test_a_compaction_that_was_not_applied_has_no_figures_and_changes_none() -> None:
    skipped = compacted(0, 0, outcome="skipped")
    found = figures_of(prepared(900), reported(0, 1_000), skipped, compacted(950, 500))
    assert found.compactions == {3: CompactionFigures(1_000, False, 500, True)}
    # Nor is a request that was not made by its plan a measure of one.
    other = figures_of(compacted(950, 500), prepared(900), reported(1, 1_000))
    assert other.compactions == {0: CompactionFigures(950, True, 500, True)}


def test_the_error_of_estimates_is_given_before_any_report_and_after_with_its_spread() -> None:
    log: list[events.Event] = [reconstructed(1), reported(0, 1_000)]
    for error in range(-10, 11):
        log += [reconstructed(1_000 + error, reserve=900), reported(len(log), 1_000)]
    found = figures_of(*log, prepared(77))
    errors = estimate_errors(found, found.requests)
    assert errors.before == Spread(1, -0.999, -0.999, -0.999)
    assert errors.after == Spread(21, 0.0, -0.009, 0.009)
    assert errors.without_beside == 1
