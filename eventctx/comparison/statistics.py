"""The certainty of a comparison: intervals from resampled sessions, figures at equal cost.

A bootstrap over sessions: as many sessions as there are, drawn with replacement, many times. The
draws are seeded, so the same figures give the same intervals; and the same draws are used for all
rows, so that a difference of two policies is one within the same sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Final, NamedTuple

import msgspec

RESAMPLES: Final = 1_000
SEED: Final = 15
EDGE: Final = 0.025
"""The share of the draws that is cut off at each end: the interval holds 95 % of them."""

FEWEST: Final = 6
"""Sessions with anything to judge, below which a difference is noise whatever its interval.

An interval drawn from two sessions only repeats the two. If a difference is by chance, all of five
sessions still point the same way in 6 % of the cases, and all of six in 3 %.
"""

Parts = Sequence[tuple[float, float]]
"""A share's numerator and denominator, for each session."""

Draws = Sequence[Sequence[int]]


class Interval(msgspec.Struct, frozen=True):
    """95 % of the draws lie within."""

    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        """Whether no difference is within it too."""
        return self.low <= 0 <= self.high


def draws(sessions: int, resamples: int = RESAMPLES, seed: int = SEED) -> list[list[int]]:
    """Places of sessions, drawn with replacement."""
    random = Random(seed)  # noqa: S311 - not for secrets; the same draws every time
    return [random.choices(range(sessions), k=sessions) for _ in range(resamples)]


def pooled(parts: Parts, draw: Sequence[int] | None = None) -> float | None:
    """The share over all sessions, or over those drawn; None where there is nothing to share."""
    chosen = parts if draw is None else [parts[place] for place in draw]
    whole = sum([one[1] for one in chosen])
    return sum([one[0] for one in chosen]) / whole if whole else None


def interval(parts: Parts, given: Draws) -> Interval | None:
    """The interval of a share. None with less than two sessions: nothing can be said."""
    return _of([pooled(parts, draw) for draw in given]) if _enough(parts) else None


def interval_of_difference(parts: Parts, others: Parts, given: Draws) -> Interval | None:
    """The interval of a share less another one's, both of the same sessions."""
    if not _enough(parts):
        return None
    return _of([_less(pooled(parts, draw), pooled(others, draw)) for draw in given])


def within_noise(parts: Parts, between: Interval | None) -> bool:
    """Whether a difference may be chance, by its interval and the number of sessions."""
    few = sum([one[1] > 0 for one in parts]) < FEWEST
    return few or between is None or between.holds_zero


def at_cost(curve: Sequence[tuple[float, float]], cost: float) -> float | None:
    """The figure, at ``cost``, of a policy that was run with several budgets or targets.

    ``curve`` are its pairs of cost and share; between two of them lies a straight line. None
    outside of them: nothing is known there.
    """
    points = sorted(curve)
    for (low, below), (high, above) in pairwise(points):
        if low <= cost <= high:
            return below if high == low else below + (above - below) * (cost - low) / (high - low)
    return None


class Curve(NamedTuple):
    """One run of a policy over sessions: parts of a share, and the cost for each session."""

    parts: Parts
    costs: Sequence[float]

    def point(self, draw: Sequence[int] | None = None) -> tuple[float, float] | None:
        """Cost and share."""
        share = pooled(self.parts, draw)
        places = range(len(self.costs)) if draw is None else draw
        return None if share is None else (sum([self.costs[place] for place in places]), share)


def at_equal_cost(
    run: Curve, baseline: Sequence[Curve], given: Draws
) -> tuple[float, Interval | None] | None:
    """By how much a run's share is above a baseline's at the same cost, with its interval.

    ``baseline`` are runs of another policy over the same sessions, with several budgets or targets.
    None where the run's cost is not between theirs. Draws for which that is so are left out.
    """

    def difference(draw: Sequence[int] | None) -> float | None:
        point = run.point(draw)
        curve = [one for each in baseline if (one := each.point(draw)) is not None]
        return None if point is None else _less(point[1], at_cost(curve, point[0]))

    found = difference(None)
    if found is None:
        return None
    return found, _of([difference(draw) for draw in given]) if _enough(run.parts) else None


def _less(share: float | None, other: float | None) -> float | None:
    return None if share is None or other is None else share - other


def _enough(parts: Parts) -> bool:
    return sum([one[1] > 0 for one in parts]) > 1


def _of(values: Sequence[float | None]) -> Interval | None:
    known = sorted([value for value in values if value is not None])
    if len(known) * 2 < len(values) or not known:
        return None
    last = len(known) - 1
    return Interval(known[round(last * EDGE)], known[round(last * (1 - EDGE))])
