"""How far estimates are from the prompts that providers reported: relative errors, in three cases.

*Growth*: before any report. A transcript does not hold what is sent with the messages, so what is
judged is the growth inside them: counted and reported, from the first request of each stretch to
each later one that is ``LEAST_GROWTH`` tokens larger. *Next*: what the import expected of each
request but the first, with the reports before it. *After*: the same of the first request after a
compaction. A session counts once, with its median, however many requests it has; a compaction
counts as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median
from typing import Final, NamedTuple

from eventctx.messages.tokens import Estimator
from tests.estimates.recorded import Session, Step

LEAST_GROWTH: Final = 10_000
"""Tokens; over less, what a harness adds unseen is more than an estimator's own error."""


class Spread(NamedTuple):
    """Relative errors in percent: how many, the median, the 5th and 95th percentile; those below 0.

    Above 0 we count too much.
    """

    number: int
    median: float
    low: float
    high: float
    below: int

    def __str__(self) -> str:
        return f"{self.median:+.1f} ({self.low:+.1f}, {self.high:+.1f}), {self.below} below 0"


def spread(errors: Iterable[float]) -> Spread | None:
    found = sorted(100 * error for error in errors)
    if not found:
        return None
    last = len(found) - 1
    low, high = found[round(0.05 * last)], found[round(0.95 * last)]
    return Spread(len(found), median(found), low, high, sum(error < 0 for error in found))


def growth(session: Session, rates: Estimator) -> Iterator[float]:
    for step, first in _grown(session):
        counted = step.sums.tokens(rates) - first.sums.tokens(rates)
        yield counted / (step.prompt - first.prompt) - 1


def features(session: Session) -> Iterator[tuple[float, ...]]:
    """The sums that grew, for each token that the prompt grew by: what rates are fitted to."""
    for step, first in _grown(session):
        grown = step.prompt - first.prompt
        yield tuple([(b - a) / grown for a, b in zip(first.sums, step.sums, strict=True)])


def _grown(session: Session) -> Iterator[tuple[Step, Step]]:
    first = session.steps[0]
    for step in session.steps:
        if step.stretch != first.stretch:
            first = step
        if step.prompt - first.prompt >= LEAST_GROWTH:
            yield step, first


def next_requests(session: Session) -> list[float]:
    """Errors of what was expected of each request but the first and those behind a compaction."""
    return [one.expected / one.prompt - 1 for one in session.steps[1:] if not one.compacted]


def behind_compactions(session: Session) -> list[float]:
    """Errors of what was expected of the first requests behind compactions."""
    return [one.expected / one.prompt - 1 for one in session.steps[1:] if one.compacted]


def by_session(sessions: Iterable[list[float]]) -> Spread | None:
    """The spread over sessions, each with its median error."""
    return spread(median(errors) for errors in sessions if errors)
