"""What changed between two runs beyond noise: the figures of all repeats of one lie on one side.

Four repeats of each run are enough: of runs that differ in nothing, 3 figures of 100 lie apart so
by chance. Fewer decide nothing. A row with a floor is compared by its ratio, which a slower disk
does not move.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final, Literal, NamedTuple

from rich.console import Console
from rich.table import Table

from tests.benchmarks.appending import MACHINE
from tests.benchmarks.report import Run
from tests.benchmarks.rows import Row, Sample, amount, keyed, samples_of

LEAST: Final = 4
"""Repeats of each run below which nothing is decided."""

MUCH: Final = 0.1
"""The share by which a figure must be slower to be named for it."""

Verdict = Literal["yes", "no", "too few repeats"]
What = Literal["value", "ratio", "processor time"]


class Change(NamedTuple):
    """One figure of a row in the repeats of both runs, in ``unit``."""

    row: Row
    what: What
    unit: str
    before: Sequence[float]
    after: Sequence[float]

    @property
    def beyond_noise(self) -> Verdict:
        if min(len(self.before), len(self.after)) < LEAST:
            return "too few repeats"
        apart = max(self.before) < min(self.after) or max(self.after) < min(self.before)
        return "yes" if apart else "no"

    @property
    def shift(self) -> str:
        """By how much B's median differs, as a share of A's where that is not 0."""
        before, after = median(self.before), median(self.after)
        if not before:
            return f"{after - before:+.3g} {self.unit}"
        return f"{(after - before) / abs(before):+.1%}"

    @property
    def is_slower(self) -> bool:
        """Whether B takes more than a tenth more, or does a tenth less, and noise does not say so.

        Too few repeats do not say that it is noise.
        """
        before, after = median(self.before), median(self.after)
        if self.row.better == "more" and self.what != "processor time":
            before, after = after, before
        return self.beyond_noise != "no" and after - before > MUCH * abs(before)


class Comparison(NamedTuple):
    """All that is the same and all that differs of two runs."""

    changes: Sequence[Change]
    only_before: Sequence[Row]
    only_after: Sequence[Row]
    remarks: Sequence[str]


def compare(before: Run, after: Run) -> Comparison:
    """Compare the rows that both runs measured, and say what makes the runs differ."""
    old, new = keyed(before.rows), keyed(after.rows)
    changes = [
        change for key, row in new.items() if key in old for change in _changes(old[key], row)
    ]
    return Comparison(
        changes,
        [row for key, row in old.items() if key not in new],
        [row for key, row in new.items() if key not in old],
        [*_differences(before, after), *_moved_floors(changes)],
    )


def _changes(old: Row, new: Row) -> Iterator[Change]:
    measured: What = "ratio" if old.ratio is not None and new.ratio is not None else "value"
    units = {"ratio": "×", "value": new.unit, "processor time": "µs"}
    for what in (measured, "processor time"):
        before, after = _figures(old, what), _figures(new, what)
        if before and after:
            yield Change(new, what, units[what], before, after)


def _figures(row: Row, what: What) -> list[float]:
    """That figure of each repeat that has it."""
    found = [_figure(one, what) for one in samples_of(row)]
    return [figure for figure in found if figure is not None]


def _figure(sample: Sample, what: What) -> float | None:
    if what == "ratio":
        return sample.value / sample.floor if sample.value is not None and sample.floor else None
    return sample.value if what == "value" else sample.cpu


def _differences(before: Run, after: Run) -> Iterator[str]:
    """What differs between the runs besides the code."""
    if before.quick != after.quick:
        yield "One of the runs is a quick one: they do not measure the same."
    for name in dict.fromkeys([*before.machine, *after.machine]):
        old, new = before.machine.get(name), after.machine.get(name)
        if name != "load" and old != new:
            yield f"Another {name}: {old} in A, {new} in B."


def _moved_floors(changes: Sequence[Change]) -> Iterator[str]:
    for one in changes:
        if one.row.figure == MACHINE and one.beyond_noise == "yes":
            yield (
                f"The machine differs ({one.row.name}, {one.what}: {one.shift}): "
                "ratios can be compared, times and rates hardly."
            )


def show(found: Comparison) -> None:
    """Print the comparison, and what got slower by more than a tenth at its end."""
    console = Console(width=None if sys.stdout.isatty() else 170)
    for remark in found.remarks:
        console.print(remark)
    table = Table(title="A against B", title_justify="left")
    for heading in ("figure", "name", "of", "A", "B", "change", "beyond noise"):
        table.add_column(heading, justify="right" if heading in ("A", "B", "change") else "left")
    for one in found.changes:
        medians = [amount(median(figures), one.unit) for figures in (one.before, one.after)]
        cells = (one.row.figure, one.row.name, one.what, *medians, one.shift, one.beyond_noise)
        table.add_row(*cells, style="bold" if one.beyond_noise == "yes" else None)
    console.print(table)
    for where, rows in (("A", found.only_before), ("B", found.only_after)):
        for row in rows:
            console.print(f"Only in {where}: {row.figure}: {row.name}")
    slower = [one for one in found.changes if one.is_slower]
    for one in slower:
        sure = "slower" if one.beyond_noise == "yes" else "slower, or noise (too few repeats)"
        console.print(f"{sure}: {one.row.figure}: {one.row.name}, {one.what}: {one.shift}")
    if not slower:
        console.print("Nothing got slower by more than a tenth.")
    if any(one.beyond_noise == "too few repeats" for one in found.changes):
        console.print(f"Too few repeats to tell: --repeat {LEAST} of both runs is enough.")
