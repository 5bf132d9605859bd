"""Plays tasks under policies, and sums up how many succeed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from eventctx.comparison import statistics
from eventctx.comparison.compare import Measured, ShareDifference
from eventctx.comparison.contenders import Contender, contenders
from eventctx.comparison.defaults import Progress
from eventctx.comparison.live import LiveRun
from eventctx.errors import InvalidSetting
from eventctx.policies.policy import Policy, PolicyFunction
from eventctx.testing.tasks.families import FAMILIES, HELD_OUT
from eventctx.testing.tasks.playing import ROOM, TaskRun, ViewSource, play
from eventctx.testing.tasks.reading import Kind
from eventctx.testing.tasks.work import Family, Work
from eventctx.text import counted, summary_line

LENGTHS: Final = (8_000, 32_000, 64_000, 128_000, 256_000)
"""Tokens of a task, about."""

USUAL_LENGTHS: Final = LENGTHS[:3]
SHARES: Final = (1.0, 0.5, 0.25, 0.12)
"""Budgets as shares of the last request of the run that sees everything."""

SEEDS: Final = 2
RECALL_CHARACTERS: Final = 8_000
"""Characters of the recall tool's answers; half as many as a smaller budget has tokens."""


class TaskContext(NamedTuple):
    """Something else than a policy that makes an agent's views: ``make`` begins one for a budget.

    ``recalls``: the agent may have the recall tool beside it.
    """

    label: str
    make: Callable[[int], ViewSource]
    recalls: bool = False


class FactCount(msgspec.Struct, frozen=True):
    """How often a kind of fact was sought, and was in view, was recalled, or was nowhere."""

    kind: Kind
    view: int
    recall: int
    nowhere: int


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """A policy with a share of the full length as budget, with the recall tool or without.

    ``succeeded`` is the share of tasks that succeed, of those that do when everything is in view:
    all of them. ``tuned`` and ``held_out`` are the same of some families. ``steps`` are requests by
    those of the run that sees everything; ``recalls`` and ``compactions`` are a task's, on average.
    ``over_budget`` is the share of requests whose view exceeds the budget.
    """

    policy: str
    share: float
    recall: bool
    tasks: int
    succeeded: Measured
    tuned: float | None
    held_out: float | None
    by_family: dict[str, float]
    facts: tuple[FactCount, ...]
    steps: float
    recalls: float
    compactions: float
    over_budget: float


class TaskTable(msgspec.Struct, frozen=True, kw_only=True):
    """Rows by share, the largest first; ``held_out`` are the families that nothing is tuned on."""

    lengths: tuple[int, ...]
    seeds: int
    families: tuple[str, ...]
    held_out: tuple[str, ...]
    rows: tuple[TaskRow, ...]

    def row(self, policy: str, share: float, *, recall: bool = False) -> TaskRow:
        """The row of a policy. Raises InvalidSetting."""
        for one in self.rows:
            if (one.policy, one.share, one.recall) == (policy, share, recall):
                return one
        known = sorted({f"{one.policy} at {one.share:.0%}" for one in self.rows})
        raise InvalidSetting(f"row: expected one of {known}, found {policy} at {share:.0%}")

    def __repr__(self) -> str:
        return summary_line(
            "TaskTable:",
            f"{len(self.families)} families",
            counted(len(self.rows), "row"),
        )


async def run_tasks(
    policies: Sequence[str | Policy | PolicyFunction | TaskContext] | None = None,
    *,
    lengths: Sequence[int] = USUAL_LENGTHS,
    shares: Sequence[float] = SHARES,
    seeds: int = SEEDS,
    families: Sequence[str] | None = None,
    recall: Sequence[bool] = (False, True),
    progress: Progress | None = None,
) -> TaskTable:
    """Play tasks of every family, length and seed under each policy, and sum up.

    Policies are named as in ``eventctx.compare``; ``masking``, ``recency`` and ``random`` are there
    for comparison. Raises InvalidSetting, and AssertionError if a task fails with everything in
    view.
    """
    _check(lengths, shares, seeds)
    chosen = _families(families)
    contexts = _contexts(policies)
    tasks = [
        (family, length, seed) for length in lengths for family in chosen for seed in range(seeds)
    ]
    columns = [
        _Column(one, share, recalls, [])
        for share in sorted(shares, reverse=True)
        for one in contexts
        for recalls in recall
        if one.recalls or not recalls
    ]
    whole: list[TaskRun] = []
    for done, (family, length, seed) in enumerate(tasks):
        work = family.make(length, seed)
        whole.append(await play(family, work, LiveRun(None, None), most_steps=length))
        assert whole[-1].succeeded, f"{family.name} {length} {seed}: fails with all in view"
        for column in columns:
            column.runs.append(await _play(column, family, work, whole[-1]))
            await asyncio.sleep(0)  # other tasks of the program may run in between
        if progress is not None:
            progress(done + 1, len(tasks))
    names = [family.name for family, _, _ in tasks]
    return TaskTable(
        lengths=tuple(lengths),
        seeds=seeds,
        families=tuple([one.name for one in chosen]),
        held_out=tuple([one.name for one in chosen if one.name in HELD_OUT]),
        rows=tuple(_rows(columns, names, whole)),
    )


class _Column(NamedTuple):
    context: TaskContext
    share: float
    recall: bool
    runs: list[TaskRun]


async def _play(column: _Column, family: Family, work: Work, whole: TaskRun) -> TaskRun:
    budget = max(1, round(whole.requests[-1].tokens * column.share))
    return await play(
        family,
        work,
        column.context.make(budget),
        most_steps=ROOM * len(whole.requests),
        recall_characters=min(RECALL_CHARACTERS, budget // 2) if column.recall else None,
    )


def _contexts(
    policies: Sequence[str | Policy | PolicyFunction | TaskContext] | None,
) -> list[TaskContext]:
    if policies is None:
        return [_of_policy(one) for one in contenders(None)]
    named = [one for one in policies if not isinstance(one, TaskContext)]
    chosen = iter(contenders(named) if named else ())
    return [one if isinstance(one, TaskContext) else _of_policy(next(chosen)) for one in policies]


def _of_policy(contender: Contender) -> TaskContext:
    def make(budget: int) -> LiveRun:
        return LiveRun(
            contender.make(()), budget, target=contender.target, threshold=contender.threshold
        )

    return TaskContext(contender.label, make, recalls=True)


def _families(names: Sequence[str] | None) -> list[Family]:
    known = {one.name: one for one in FAMILIES}
    if unknown := [one for one in names or () if one not in known]:
        raise InvalidSetting(f"families: expected some of {sorted(known)}, found {unknown}")
    return [*known.values()] if names is None else [known[one] for one in names]


def _check(lengths: Sequence[int], shares: Sequence[float], seeds: int) -> None:
    if not lengths or min(lengths) < 2_000:
        raise InvalidSetting(f"lengths: expected tokens from 2000, found {[*lengths]}")
    if not shares or not all(0 < one <= 1 for one in shares):
        raise InvalidSetting(f"shares: expected fractions up to 1, found {[*shares]}")
    if seeds < 1:
        raise InvalidSetting(f"seeds: expected at least 1, found {seeds}")


def _rows(
    columns: Sequence[_Column], names: Sequence[str], whole: Sequence[TaskRun]
) -> Iterator[TaskRow]:
    drawn = statistics.draws(len(names))
    for column in columns:
        first = next(one for one in columns if (one.share, one.recall) == column[1:3])
        own, others = [_parts(one.runs) for one in (column, first)]
        value = statistics.pooled(own) or 0.0
        difference = None
        if first is not column:
            between = statistics.interval_of_difference(own, others, drawn)
            noise = statistics.within_noise(own, between)
            base = statistics.pooled(others) or 0.0
            difference = ShareDifference(value - base, between, noise)
        by_family = {
            name: _share(column.runs, [one == name for one in names]) or 0.0
            for name in dict.fromkeys(names)
        }
        requests = [one for run in column.runs for one in run.requests]
        last = [run.requests[-1].compactions for run in column.runs]
        yield TaskRow(
            policy=column.context.label,
            share=column.share,
            recall=column.recall,
            tasks=len(names),
            succeeded=Measured(value, statistics.interval(own, drawn), difference),
            tuned=_share(column.runs, [one not in HELD_OUT for one in names]),
            held_out=_share(column.runs, [one in HELD_OUT for one in names]),
            by_family=by_family,
            facts=tuple(_facts(column.runs)),
            steps=len(requests) / sum([len(one.requests) for one in whole]),
            recalls=sum([one.recalls for one in column.runs]) / len(names),
            compactions=sum(last) / len(names),
            over_budget=sum([one.floor for one in requests]) / len(requests),
        )


def _parts(runs: Sequence[TaskRun]) -> list[tuple[float, float]]:
    return [(float(one.succeeded), 1.0) for one in runs]


def _share(runs: Sequence[TaskRun], chosen: Sequence[bool]) -> float | None:
    found = [one.succeeded for one, wanted in zip(runs, chosen, strict=True) if wanted]
    return sum(found) / len(found) if found else None


def _facts(runs: Sequence[TaskRun]) -> Iterator[FactCount]:
    sought = [one for run in runs for one in run.sought]
    for kind in dict.fromkeys([one.kind for one in sought]):
        places = [one.where for one in sought if one.kind == kind]
        counts = [places.count(where) for where in ("view", "recall", "nowhere")]
        yield FactCount(kind, *counts)
