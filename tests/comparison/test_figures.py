"""What a run's views held of what the model needed, what they cost, and intervals over sessions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from eventctx.comparison import contenders
from eventctx.comparison.defaults import Prices
from eventctx.comparison.figures import (
    RunFigures,
    by_rule,
    compaction_costs,
    figures,
    needed_again,
)
from eventctx.comparison.played import NumberSet, Played
from eventctx.comparison.recording import Recording
from eventctx.comparison.simulator import play
from eventctx.comparison.statistics import (
    Curve,
    at_cost,
    at_equal_cost,
    draws,
    interval,
    interval_of_difference,
    pooled,
)
from eventctx.policies.named import policy_named
from eventctx.policies.policy import Proposal, Visible
from eventctx.policies.proposals import drop
from tests.comparison.given import NAMES, proposing, session


def run(name: str, budget: int | None, messages: Any = None) -> tuple[Recording, Played]:
    recording = Recording(session() if messages is None else messages, name="s")
    return recording, play(recording, policy_named(name), budget)


def summed(recording: Recording, played: Played) -> RunFigures:
    return figures(played, recording.needs, recording.demands)


def test_without_compaction_nothing_is_lost_and_every_request_begins_with_the_one_before() -> None:
    recording, played = run("ladder", None)
    found = summed(recording, played)
    assert (found.recall, found.demand_recall, found.starving) == (1, 1, 0)
    for before, after in pairwise(played.requests):
        assert after.prefix == before.tokens
    assert found.tokens - found.cached == played.requests[-1].tokens
    assert (found.compactions, found.floors, found.fallbacks) == (0, 0, 0)
    answers = [*range(1, 22, 2), 23]  # of the model: there is a request before each
    assert [one.before for one in played.requests] == answers
    assert [need.before for need in recording.needs] == answers


def test_what_a_compaction_drops_is_lost_to_the_request_that_needs_it() -> None:
    recording, played = run("simple", 6_000)
    assert played.compactions
    found = summed(recording, played)
    assert found.judged == 1
    assert (found.recall, found.recall_of_names, found.starving) == (0, 0, 1)
    (loss,) = needed_again("simple", 6_000, recording, played)
    assert (loss.message, loss.behind, loss.request, loss.requests) == (2, 20, 11, 1)
    assert (loss.disposition, loss.reason, loss.session) == ("dropped", "older", "s")
    assert NAMES[0] in loss.text and loss.weight == 1
    (rule,) = by_rule([loss])
    assert (rule.disposition, rule.reason, rule.share) == ("dropped", "older", 1)


def test_a_shortened_text_counts_as_far_as_it_is_still_there() -> None:
    recording, played = run("ladder", 6_000, session(4, size=6_000))
    assert played.compactions[-1].dispositions[2] == ("shortened", "old_result")
    assert 2 not in played.requests[-2].whole
    assert summed(recording, played).recall == 1


def test_a_text_that_was_cut_out_is_lost_by_the_rule_that_cut_it() -> None:
    messages = session(4, size=6_000)
    name, filler = messages[2]["content"].split("\n")
    middle = len(filler) // 2
    messages[2]["content"] = f"{filler[:middle]}\n{name}\n{filler[middle:]}"
    recording, played = run("ladder", 6_000, messages)
    (loss,) = needed_again("ladder", 6_000, recording, played)
    assert (loss.message, loss.disposition, loss.reason) == (2, "shortened", "old_result")


def test_a_message_number_is_that_of_the_session_that_was_played() -> None:
    numbers = [number + 100 for number in range(len(session()))]
    recording = Recording(session(), name="s", numbers=numbers)
    played = play(recording, policy_named("simple"), 6_000)
    (loss,) = needed_again("simple", 6_000, recording, played)
    assert (loss.message, loss.behind) == (102, 120)


def test_a_failing_policy_leaves_the_decision_to_the_ladder_and_is_counted() -> None:
    def fails(visible: Visible) -> Proposal:
        raise RuntimeError("no idea")

    recording = Recording(session())
    played = play(recording, proposing("broken", fails), 6_000)
    assert {one.fallback for one in played.compactions} == {"RuntimeError: no idea"}
    same = play(recording, policy_named("ladder"), 6_000)
    assert [one.tokens for one in played.requests] == [one.tokens for one in same.requests]
    assert summed(recording, played).fallbacks == len(played.compactions)


def test_a_compaction_that_drops_the_start_leaves_no_prefix_after_it() -> None:
    oldest = proposing("oldest", lambda seen: drop(seen, [one.number for one in seen.messages][:8]))
    played = play(Recording([*session(4), *session(9)]), oldest, 6_000)
    compacted = {one.before for one in played.compactions}
    assert compacted
    for before, after in pairwise(played.requests):
        assert (after.prefix == before.tokens) == (after.before not in compacted)


@pytest.mark.parametrize(("cached", "cost"), [(0, 125), (100, 10), (40, 79)])
def test_cached_tokens_cost_a_tenth_and_all_others_a_quarter_more(cached: int, cost: int) -> None:
    assert RunFigures(tokens=100, cached=cached).cost() == pytest.approx(cost)
    assert RunFigures(tokens=100, cached=cached).cost(Prices(0, 2)) == 2 * (100 - cached)


# -- baselines -----------------------------------------------------------------------------------


def held_at_the_end(policy: Any, recording: Recording) -> set[int]:
    return set(play(recording, policy, 6_000).requests[-2].whole)


def test_recency_keeps_the_newest_rounds_and_hindsight_the_one_that_is_needed() -> None:
    recording = Recording(session())
    recent = held_at_the_end(contenders.recency(), recording)
    assert 2 not in recent
    assert {17, 18, 19, 20} <= recent
    assert 2 in held_at_the_end(contenders.hindsight(recording.needs), recording)


def test_chance_is_the_same_for_one_seed_and_another_for_another() -> None:
    recording = Recording([*session(10), *session(10)])
    first, again, other = (
        [set(one.whole) for one in play(recording, contenders.chance(seed), 6_000).requests]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_baselines_come_down_to_the_target() -> None:
    recording = Recording(session(20))
    hindsight = contenders.hindsight(recording.needs)
    for policy in (contenders.recency(), contenders.chance(), hindsight):
        for one in play(recording, policy, 8_000).compactions:
            assert one.tokens_after <= 4_000


# -- sets of numbers -----------------------------------------------------------------------------


def test_numbers_are_a_set_of_whole_numbers() -> None:
    numbers = NumberSet.of([0, 3, 200])
    assert (list(numbers), len(numbers)) == ([0, 3, 200], 3)
    assert numbers == {0, 3, 200}
    assert [one in numbers for one in (3, -1, "3")] == [True, False, False]
    assert [numbers.isdisjoint(one) for one in ((1, 2), (1, 200))] == [True, False]


@pytest.mark.parametrize("name", ["workset", "ladder", "simple"])
def test_a_compaction_gives_up_what_the_next_request_does_not_begin_with(name: str) -> None:
    recording, played = run(name, 6_000, session(20))
    found = summed(recording, played)
    breaks = [
        before.tokens - after.prefix
        for before, after in pairwise(played.requests)
        if after.compactions > before.compactions
    ]
    assert [one.given_up for one in compaction_costs(played)] == breaks != []
    assert found.given_up == sum(breaks)
    assert 0 <= found.rewritten <= found.tokens - found.cached
    assert 0 <= found.rewriting() < found.cost()


def test_a_session_that_grows_evenly_is_compacted_again_when_it_was_expected() -> None:
    recording, played = run("simple", 12_000, session(20, size=2_000) * 3)
    found = summed(recording, played)
    expected, lasted = found.requests_expected, found.requests_lasted
    assert found.followed >= 1 and expected is not None and lasted is not None
    assert abs(expected - lasted) <= 1


# -- statistics ------------------------------------------------------------------------------------


ALIKE = [(8.0, 10.0)] * 12
MIXED = [(float(held), 10.0) for held in (2, 9, 5, 7, 10, 3, 8, 6, 4, 9, 7, 5)]


def test_a_share_is_over_all_requests_of_all_sessions() -> None:
    assert pooled([(1, 1), (0, 3)]) == 0.25
    assert pooled([(1, 1), (0, 3)], [0, 0, 1]) == 0.4
    assert pooled([(0, 0)]) is None


def test_the_same_sessions_are_drawn_every_time() -> None:
    assert draws(5) == draws(5) != draws(5, seed=1)
    assert [len(one) for one in draws(5)] == [5] * 1_000


def test_an_interval_holds_the_share_and_has_no_width_where_sessions_are_alike() -> None:
    found, share = interval(MIXED, draws(12)), pooled(MIXED)
    assert found and share and found.low < share < found.high
    # Twelve sessions with a standard deviation of 0.25: about two standard errors to each side.
    assert found.high - found.low == pytest.approx(4 * 0.25 / 12**0.5, rel=0.2)
    alike = interval(ALIKE, draws(12))
    assert alike and (alike.low, alike.high) == (0.8, 0.8)


def test_a_small_difference_in_every_session_is_no_noise_but_one_that_hangs_on_some_is() -> None:
    """However unlike the sessions are."""
    better = [(held + 0.2, count) for held, count in MIXED]
    between = interval_of_difference(better, MIXED, draws(12))
    assert between and between.low == pytest.approx(0.02)
    assert not between.holds_zero
    other = [(held + (1 if place % 2 else -1), 10.0) for place, (held, _) in enumerate(MIXED)]
    between = interval_of_difference(other, MIXED, draws(12))
    assert between and between.holds_zero


def test_between_two_budgets_lies_a_straight_line_and_nothing_outside() -> None:
    curve = [(30.0, 0.9), (10.0, 0.5)]
    for cost, value in ((10, 0.5), (15, 0.6), (30, 0.9)):
        assert at_cost(curve, cost) == pytest.approx(value)
    assert (at_cost(curve, 9.9), at_cost(curve, 31)) == (None, None)
    assert at_cost([(10.0, 0.5)], 10) is None


def test_a_policy_that_is_as_good_for_less_is_better_at_equal_cost() -> None:
    cheap, dear = Curve(MIXED, [10.0] * 12), Curve(MIXED, [20.0] * 12)
    poor = Curve([(held / 2, count) for held, count in MIXED], [5.0] * 12)
    found, share = at_equal_cost(cheap, [poor, dear], draws(12)), pooled(MIXED)
    assert found and share
    by, between = found
    assert by == pytest.approx(share - share * (0.5 + 0.5 / 3))
    assert between and between.low > 0
    assert at_equal_cost(dear, [poor, cheap], draws(12)) is None
