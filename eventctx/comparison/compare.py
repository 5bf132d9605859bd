"""Compares policies over recorded sessions: every policy with every budget, row by row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from eventctx.comparison import statistics
from eventctx.comparison.contenders import (
    HINDSIGHT,
    WHOLE,
    Contender,
    budgets_of,
    contenders,
    with_hindsight,
    without_compaction,
)
from eventctx.comparison.defaults import BUDGETS, LOSSES, PRICES, Prices, Progress
from eventctx.comparison.figures import (
    LostByRule,
    NeededAgain,
    RunFigures,
    by_rule,
    figures,
    needed_again,
    worst,
)
from eventctx.comparison.recording import Recording, UnusedSession
from eventctx.comparison.simulator import play_with
from eventctx.comparison.statistics import Interval
from eventctx.errors import InvalidSetting
from eventctx.policies.advisers import Scorer, Summarizer
from eventctx.policies.policy import Policy, PolicyFunction
from eventctx.text import counted, html_table, summary_line


class ShareDifference(msgspec.Struct, frozen=True):
    """A share less that of the first policy with the same budget, over the same sessions.

    ``within_noise``: the interval holds 0, or fewer than six sessions have anything to judge.
    """

    value: float
    interval: Interval | None
    within_noise: bool


class Measured(msgspec.Struct, frozen=True):
    """A share from 0 to 1 (None: nothing to judge), its interval, and its difference."""

    value: float | None
    interval: Interval | None = None
    difference: ShareDifference | None = None


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A policy with a budget, over all sessions.

    ``evidence``, ``quotes`` and ``names`` are shares of what the model reused that its views held;
    ``with_pointers`` counts what a view points to by number, ``demands`` the sentences of a person
    that stood word for word in later requests, ``starved`` requests with less than half of what
    they needed. ``prefix_reuse`` is the share of ``tokens`` that the provider's cache had.
    ``cost_share`` is the cost by that of the row without compaction. Compactions gave up
    ``given_up`` tokens of cache; ``rewriting_share`` of the cost is for writing them again. Each
    was followed by another after ``lasted`` requests on average, ``expected`` as predicted, by the
    session's growth until then (None: none was followed by another). ``over_budget`` counts
    requests whose view could not be brought below the budget, ``fallbacks`` compactions that the
    ladder decided because the policy failed; ``failure`` is what the first of them failed with.
    """

    policy: str
    budget: int | None
    target_usage: float | None
    evidence: Measured
    quotes: Measured
    names: Measured
    with_pointers: float | None
    demands: float | None
    starved: float | None
    prefix_reuse: float | None
    tokens: int
    cost: float
    cost_share: float
    requests: int
    judged: int
    compactions: int
    compactions_per_50: float | None
    given_up: int
    rewriting_share: float
    expected: float | None
    lasted: float | None
    over_budget: int
    fallbacks: int
    failure: str | None
    lost_by_rule: tuple[LostByRule, ...] = ()


class ComparedSession(msgspec.Struct, frozen=True):
    """A session of a comparison; ``left_out`` messages after its first compaction are not used."""

    session: str
    messages: int
    requests: int
    judged: int
    left_out: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Rows by budget, the largest first; the first one is without compaction."""

    sessions: tuple[ComparedSession, ...]
    passed_over: tuple[UnusedSession, ...]
    rows: tuple[PolicyRow, ...]
    losses: tuple[NeededAgain, ...]

    def row(self, policy: str, budget: int | None = None) -> PolicyRow:
        """The row of a policy; the first one, if no budget is named. Raises InvalidSetting."""
        for one in self.rows:
            if one.policy == policy and budget in (None, one.budget):
                return one
        known = sorted({f"{one.policy} at {one.budget}" for one in self.rows})
        raise InvalidSetting(f"row: expected one of {known}, found {policy} at {budget}")

    def __repr__(self) -> str:
        return summary_line(
            "Comparison:",
            counted(len(self.sessions), "session"),
            counted(len(self.rows), "row"),
        )

    def _repr_html_(self) -> str:
        heads = ("policy", "budget", "evidence", "quotes", "names", "tokens", "cost", "compactions")
        rows = [
            (
                one.policy,
                one.budget,
                *[_percent(share.value) for share in (one.evidence, one.quotes, one.names)],
                one.tokens,
                f"{one.cost_share:.0%}",
                one.compactions,
            )
            for one in self.rows
        ]
        return html_table(repr(self)[1:-1], heads, rows)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


class RunOver(NamedTuple):
    """A contender with a budget over all sessions: the figures of each, and what was lost.

    ``failures`` are the errors for which the ladder decided in its place.
    """

    contender: Contender
    budget: int | None
    figures: list[RunFigures]
    losses: list[NeededAgain]
    failures: list[str]

    def parts(self, numerator: str, denominator: str) -> list[tuple[float, float]]:
        """A share's parts, session by session."""
        return [(getattr(one, numerator), getattr(one, denominator)) for one in self.figures]

    def curve(self, share: str, prices: Prices = PRICES) -> statistics.Curve:
        """A share of ``SHARES`` with the cost, for a comparison at equal cost."""
        costs = [one.cost(prices) for one in self.figures]
        return statistics.Curve(self.parts(*SHARES[share]), costs)


SHARES = {
    "evidence": ("evidence", "judged"),
    "quotes": ("quotes", "judged_quotes"),
    "names": ("names", "judged_names"),
}


async def compare(
    recordings: Sequence[Recording],
    policies: Sequence[str | Policy | PolicyFunction] | None = None,
    budgets: Sequence[int | str] = BUDGETS,
    *,
    summarizer: Summarizer | None = None,
    scorer: Scorer | None = None,
    prices: Prices = PRICES,
    losses: int = LOSSES,
    passed_over: Sequence[UnusedSession] = (),
    progress: Progress | None = None,
) -> Comparison:
    """Play every policy with every budget over the sessions, and sum up.

    Raises InvalidSetting; what a policy raises makes the ladder decide, and is counted.
    """
    if not recordings:
        reasons = "; ".join([one.reason for one in passed_over][:3])
        raise InvalidSetting(reasons or "sessions: expected at least one, found none")
    chosen = contenders(policies, summarizer, scorer)
    runs = await run_all(
        recordings,
        [*chosen, with_hindsight()],
        budgets_of(budgets),
        summarizer=summarizer,
        scorer=scorer,
        progress=progress,
    )
    drawn = statistics.draws(len(recordings))
    whole = sum(runs[0].figures, RunFigures()).cost(prices)
    first = {run.budget: run for run in reversed(runs) if run.contender.label == chosen[0].label}
    rows = [_row(run, first.get(run.budget), drawn, whole, prices) for run in runs]
    named = {one.label for one in chosen}
    lost = [one for run in runs if run.contender.label in named for one in run.losses[:losses]]
    judged = [one.judged for one in runs[0].figures]
    return Comparison(
        sessions=tuple(
            [
                ComparedSession(one.name, len(one), len(one.requests), count, one.left_out)
                for one, count in zip(recordings, judged, strict=True)
            ]
        ),
        passed_over=tuple(passed_over),
        rows=tuple(rows),
        losses=tuple(lost),
    )


async def run_all(
    recordings: Sequence[Recording],
    chosen: Sequence[Contender],
    budgets: Sequence[int],
    *,
    summarizer: Summarizer | None = None,
    scorer: Scorer | None = None,
    progress: Progress | None = None,
) -> list[RunOver]:
    """A run without compaction, then every contender with every budget."""
    pairs = [(one, budget) for budget in budgets for one in chosen]
    runs = [
        RunOver(contender, budget, [], [], [])
        for contender, budget in [(without_compaction(), None), *pairs]
    ]
    done, total = 0, len(recordings) * len(runs)
    for recording in recordings:
        # By session, so that what was read of it can be let go before the next.
        for run in runs:
            played = await play_with(
                recording,
                run.contender.make(recording.needs),
                run.budget,
                summarizer=summarizer,
                scorer=scorer,
                target=run.contender.target,
                threshold=run.contender.threshold,
            )
            run.figures.append(figures(played, recording.needs, recording.demands))
            run.failures.extend([one.fallback for one in played.compactions if one.fallback])
            run.losses.extend(needed_again(run.contender.label, run.budget, recording, played))
            done += 1
            if progress is not None:
                progress(done, total)
            await asyncio.sleep(0)  # other tasks of the program may run in between
    return [run._replace(losses=worst(run.losses)) for run in runs]


def _row(
    run: RunOver,
    first: RunOver | None,
    drawn: statistics.Draws,
    whole: float,
    prices: Prices,
) -> PolicyRow:
    total = sum(run.figures, RunFigures())
    compared = None if first is run or run.contender.label in (WHOLE, HINDSIGHT) else first
    shares = {name: _measured(run, compared, parts, drawn) for name, parts in SHARES.items()}
    cost = total.cost(prices)
    return PolicyRow(
        policy=run.contender.label,
        budget=run.budget,
        target_usage=None if run.budget is None else run.contender.target,
        **shares,
        with_pointers=total.recall_with_pointers,
        demands=total.demand_recall,
        starved=total.starving,
        prefix_reuse=total.prefix_reuse,
        tokens=total.tokens,
        cost=cost,
        cost_share=cost / whole if whole else 0.0,
        requests=total.requests,
        judged=total.judged,
        compactions=total.compactions,
        compactions_per_50=total.compactions_per_50,
        given_up=total.given_up,
        rewriting_share=total.rewriting(prices) / cost if cost else 0.0,
        expected=total.requests_expected,
        lasted=total.requests_lasted,
        over_budget=total.floors,
        fallbacks=total.fallbacks,
        failure=next(iter(run.failures), None),
        lost_by_rule=by_rule(run.losses),
    )


def _measured(
    run: RunOver, compared: RunOver | None, parts: tuple[str, str], drawn: statistics.Draws
) -> Measured:
    own = run.parts(*parts)
    value = statistics.pooled(own)
    found = statistics.interval(own, drawn)
    if compared is None or value is None:
        return Measured(value, found)
    others = compared.parts(*parts)
    base = statistics.pooled(others)
    assert base is not None  # noqa: S101 - judged on the same requests
    between = statistics.interval_of_difference(own, others, drawn)
    noise = statistics.within_noise(own, between)
    return Measured(value, found, ShareDifference(value - base, between, noise))
