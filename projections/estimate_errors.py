"""How far estimates of requests were from the counts that providers reported of them later."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from eventctx.projections.figures import Figures


class Spread(msgspec.Struct, frozen=True):
    """Relative errors of estimates, 0.05 for 5 % too high: how many, the median, 5 % and 95 %."""

    requests: int
    median: float
    low: float
    high: float


class EstimateErrors(msgspec.Struct, frozen=True):
    """How far estimates were from the counts reported later; None where nothing was reported.

    ``before`` is of requests made before any prompt was reported, ``after`` of later ones, whose
    estimates had learnt from earlier reports. ``without_beside`` is the number of those in
    ``before`` that could not count what was sent beside the messages, since the log does not say.
    """

    before: Spread | None
    after: Spread | None
    without_beside: int


def estimate_errors(figures: Figures, positions: Iterable[int]) -> EstimateErrors:
    """The estimator's errors over the requests at ``positions``, in order."""
    found: tuple[list[float], list[float]] = ([], [])
    without = 0
    wanted = set(positions)
    for made, reported in figures.reported():
        if reported is None or made.position not in wanted:
            continue
        found[made.calibrated].append((made.estimate - reported) / reported)
        without += not made.calibrated and made.beside is None
    return EstimateErrors(spread(found[False]), spread(found[True]), without)


def spread(values: Iterable[float]) -> Spread | None:
    """Median, 5 % and 95 % of ``values`` by linear interpolation; None for none.

    Rounded to four digits: a hundredth of a percent.
    """
    ordered = sorted(values)
    if not ordered:
        return None
    quantiles = [_quantile(ordered, share) for share in (0.5, 0.05, 0.95)]
    return Spread(len(ordered), *quantiles)


def _quantile(ordered: list[float], share: float) -> float:
    """Hyndman and Fan's definition 7, which spreadsheets and numpy use."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return round(ordered[below] + (ordered[above] - ordered[below]) * (place - below), 4)
