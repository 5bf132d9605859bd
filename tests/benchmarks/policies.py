"""Policies and neighbours' ways: what their views held, what they cost, and what they led to.

Success is that of generated tasks, the same on any machine: no model is called, and neighbours that
summarize get the same scripted summary. All else is measured over recorded sessions, where
``EVENTCTX_SESSIONS`` names a folder of some, or over the tasks' own transcripts, which repeat too
little to tell of evidence.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from eventctx.comparison.contenders import Contender, contenders
from eventctx.comparison.defaults import PRICES
from eventctx.comparison.figures import RunFigures, figures
from eventctx.comparison.live import LiveRun
from eventctx.comparison.played import Played, PlayedRequest
from eventctx.comparison.recording import Recording
from eventctx.projections.evidence import normalise
from eventctx.testing.tasks import FAMILIES, HELD_OUT, TaskContext, ViewSource, play, run_tasks
from tests.benchmarks.peers.views.source import WAYS, Process
from tests.benchmarks.place import Place
from tests.benchmarks.recorded_chats import recorded_chats
from tests.benchmarks.rows import Row, missing

FIGURE: Final = "policies"
POLICIES: Final = ("workset", "ladder", "importance", "simple", "masking", "recency", "random")
LENGTHS: Final = (8_000, 32_000, 64_000)
SHARES: Final = (0.5, 0.25, 0.12)
SEEDS: Final = 2
SESSIONS: Final = 10
"""Recorded sessions, those with most to judge."""

LEAST_JUDGED: Final = 20
"""Requests that used something again, below which nothing is said of evidence."""


class Line(NamedTuple):
    """A policy with a share of the full length: its figures over transcripts, and its success."""

    name: str
    share: float
    figures: RunFigures
    words: float
    success: float
    held_out: float
    with_recall: float | None


async def measure(place: Place) -> list[Row]:
    lengths, seeds = LENGTHS[: place.count(3, 1)], place.count(SEEDS, 1)
    processes = [Process(way) for way in WAYS]
    absent = [one for one in processes if one.missing]
    peers = [one for one in processes if not one.missing]
    try:
        folder = os.environ.get("EVENTCTX_SESSIONS")
        recordings = (
            await recorded_chats(Path(folder), place.count(SESSIONS, 3))
            if folder
            else await _transcripts(lengths, seeds)
        )
        whole = _whole(recordings)
        contexts = [*map(_of_policy, contenders(POLICIES)), *[one.context() for one in peers]]
        found = await run_tasks(contexts, lengths=lengths, shares=SHARES, seeds=seeds)
        lines = []
        for row in [one for one in found.rows if not one.recall]:
            context = next(one for one in contexts if one.label == row.policy)
            sums, words = _over(recordings, context, row.share)
            recalled = found.row(row.policy, row.share, recall=True) if context.recalls else None
            lines.append(
                Line(
                    row.policy,
                    row.share,
                    sums,
                    words,
                    row.succeeded.value or 0.0,
                    row.held_out or 0.0,
                    None if recalled is None else recalled.succeeded.value,
                )
            )
    finally:
        for one in processes:
            one.close()
    show(lines, whole)
    versions = {one.way.name: one.version for one in peers}
    return [
        *[_row(line, whole, versions.get(line.name, "")) for line in lines],
        *[missing(FIGURE, one.way.name, one.missing) for one in absent],
    ]


async def _transcripts(lengths: Sequence[int], seeds: int) -> list[Recording]:
    """The runs that see everything."""
    found = []
    for length in lengths:
        for family in FAMILIES:
            for seed in range(seeds):
                work = family.make(length, seed)
                run = await play(family, work, LiveRun(None, None), most_steps=length)
                found.append(Recording(run.messages, name=f"{family.name} {length} {seed}"))
    return found


def _of_policy(contender: Contender) -> TaskContext:
    def make(budget: int) -> LiveRun:
        made = contender.make(())
        return LiveRun(made, budget, target=contender.target, threshold=contender.threshold)

    return TaskContext(contender.label, make, recalls=True)


def _whole(recordings: Sequence[Recording]) -> float:
    """The cost without any compaction."""
    return _sum([_play(one, LiveRun(None, None))[0] for one in recordings]).cost(PRICES)


def _over(
    recordings: Sequence[Recording], context: TaskContext, share: float
) -> tuple[RunFigures, float]:
    """The figures over all transcripts, and the share of persons' messages in later requests."""
    found = []
    for recording in recordings:
        budget = max(1, round(_size(recording) * share))
        found.append(_play(recording, context.make(budget)))
    pairs = sum([pairs for _, _, pairs in found])
    return _sum([one for one, _, _ in found]), sum([held for _, held, _ in found]) / pairs


def _size(recording: Recording) -> int:
    """The tokens of the last request, with everything in view."""
    run = LiveRun(None, None)
    for message in recording.messages[:-1]:
        run.add(message)
    return run.request().tokens


def _sum(parts: Sequence[RunFigures]) -> RunFigures:
    return sum(parts, RunFigures())


def _play(recording: Recording, source: ViewSource) -> tuple[RunFigures, int, int]:
    """The figures, and of persons' messages how many were whole in later requests, of how many."""
    requests: list[PlayedRequest] = []
    persons: list[str] = []
    held = pairs = 0
    for number, message in enumerate(recording.messages):
        if number in recording.requests:
            made = source.request()._replace(before=number)
            requests.append(made)
            text = "\n".join([normalise(row) for row in source.rows()])
            held += sum([one in text for one in persons])
            pairs += len(persons)
        if message["role"] == "user":
            persons.append(normalise(message).strip())
        source.add(message)
    done = requests[-1].compactions if requests else 0
    played = Played("", None, tuple(requests), (), 0)
    sums = figures(played, recording.needs, recording.demands)
    return sums + RunFigures(compactions=done), held, pairs


HEADS: Final = (
    *("policy", "success %", "held out", "recall", "evidence %", "demands %", "persons %", "cost"),
    *("compactions/50", "prefix %", "over %"),
)


def cells(line: Line, whole: float) -> list[str]:
    """A line's figures, as the table shows them."""
    sums = line.figures
    evidence = sums.recall if sums.judged >= LEAST_JUDGED else None
    shares = [evidence, sums.demand_recall, line.words]
    return [
        line.name,
        _percent(line.success),
        _percent(line.held_out),
        _percent(line.with_recall),
        *[_percent(one) for one in shares],
        f"{sums.cost(PRICES) / whole:.3f}",
        f"{sums.compactions_per_50 or 0:.1f}",
        _percent(sums.prefix_reuse),
        _percent(sums.floors / sums.requests),
    ]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def show(lines: Sequence[Line], whole: float) -> None:
    """Print a table for each share."""
    console = Console(width=160)
    for share in dict.fromkeys([one.share for one in lines]):
        made = Table(title=f"{share:.0%} of the full length", title_justify="left")
        for head in HEADS:
            made.add_column(head, justify="left" if head == "policy" else "right")
        chosen = [one for one in lines if one.share == share]
        for line in sorted(chosen, key=lambda one: -one.success):
            made.add_row(*cells(line, whole))
        console.print(made)
    console.print(f"held out: {', '.join(HELD_OUT)}; recall: with the recall tool; cost: of whole")


def _row(line: Line, whole: float, version: str) -> Row:
    told = [f"{head} {cell}" for head, cell in zip(HEADS, cells(line, whole), strict=True)][2:]
    return Row(
        figure=FIGURE,
        name=f"{line.name} at {line.share:.0%}",
        value=100 * line.success,
        unit="%",
        better="more",
        note="; ".join([*told, *([version] if version else [])]),
    )
