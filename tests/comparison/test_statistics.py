"""Intervals over sessions, and figures at equal cost."""

from __future__ import annotations

import pytest

from eventctx.comparison.statistics import (
    Curve,
    at_cost,
    at_equal_cost,
    draws,
    interval,
    interval_of_difference,
    pooled,
)

ALIKE = [(8.0, 10.0)] * 12
MIXED = [(float(held), 10.0) for held in (2, 9, 5, 7, 10, 3, 8, 6, 4, 9, 7, 5)]


def test_a_share_is_over_all_requests_of_all_sessions() -> None:
    assert pooled([(1, 1), (0, 3)]) == 0.25
    assert pooled([(1, 1), (0, 3)], [0, 0, 1]) == 0.4
    assert pooled([(0, 0)]) is None


def test_the_same_sessions_are_drawn_every_time() -> None:
    assert draws(5) == draws(5)
    assert draws(5) != draws(5, seed=1)
    assert len(draws(5)) == 1_000
    assert {len(one) for one in draws(5)} == {5}


def test_an_interval_holds_the_share_and_has_no_width_where_sessions_are_alike() -> None:
    found = interval(MIXED, draws(12))
    share = pooled(MIXED)
    assert found is not None
    assert share is not None
    assert found.low < share < found.high
    # Twelve sessions with a standard deviation of 0.25: about two standard errors to each side.
    assert found.high - found.low == pytest.approx(4 * 0.25 / 12**0.5, rel=0.2)
    alike = interval(ALIKE, draws(12))
    assert alike is not None
    assert (alike.low, alike.high) == (0.8, 0.8)


def test_a_small_difference_in_every_session_is_no_noise_however_unlike_the_sessions_are() -> None:
    better = [(held + 0.2, count) for held, count in MIXED]
    between = interval_of_difference(better, MIXED, draws(12))
    assert between is not None
    assert between.low == pytest.approx(0.02)
    assert not between.holds_zero


def test_a_difference_that_hangs_on_some_sessions_is_noise() -> None:
    other = [(held + (1 if place % 2 else -1), 10.0) for place, (held, _) in enumerate(MIXED)]
    between = interval_of_difference(other, MIXED, draws(12))
    assert between is not None
    assert between.holds_zero


def test_between_two_budgets_lies_a_straight_line_and_nothing_outside() -> None:
    curve = [(30.0, 0.9), (10.0, 0.5)]
    assert at_cost(curve, 10) == 0.5
    assert at_cost(curve, 15) == pytest.approx(0.6)
    assert at_cost(curve, 30) == 0.9
    assert at_cost(curve, 9.9) is None
    assert at_cost(curve, 31) is None
    assert at_cost([(10.0, 0.5)], 10) is None


def test_a_policy_that_is_as_good_for_less_is_better_at_equal_cost() -> None:
    cheap = Curve(MIXED, [10.0] * 12)
    dear = Curve(MIXED, [20.0] * 12)
    poor = Curve([(held / 2, count) for held, count in MIXED], [5.0] * 12)
    found = at_equal_cost(cheap, [poor, dear], draws(12))
    assert found is not None
    by, between = found
    share = pooled(MIXED)
    assert share is not None
    assert by == pytest.approx(share - share * (0.5 + 0.5 / 3))
    assert between is not None
    assert between.low > 0
    assert at_equal_cost(dear, [poor, cheap], draws(12)) is None
