"""What changed between two runs beyond noise.

The interval is one of order statistics and asks nothing of how the figures are spread: of all
differences between a repeat of B and one of A, so many are left out at both ends that the rest
holds the true shift in 95 of 100 comparisons (Hodges and Lehmann's interval, by the distribution
of Mann and Whitney's U). Four repeats of each run are enough; three give 90 %, and fewer decide
nothing. A row with a floor is compared by its ratio, which a slower disk does not move.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import comb
from operator import attrgetter
from statistics import median
from typing import Final, Literal, NamedTuple

from rich.console import Console
from rich.table import Table

from tests.benchmarks import machine
from tests.benchmarks.repeats import keyed, samples_of
from tests.benchmarks.report import Run
from tests.benchmarks.rows import Row, Sample, amount

WANTED: Final = 0.95
LEAST: Final = 0.9
"""An interval that holds the shift less often than this decides nothing."""

Verdict = Literal["yes", "no", "too few repeats"]
What = Literal["value", "ratio", "processor time"]


class Shift(NamedTuple):
    """By how much B lies above A, in the unit of both."""

    middle: float
    low: float
    high: float
    coverage: float
    """How often an interval made like this holds the true shift."""

    @property
    def beyond_noise(self) -> Verdict:
        if self.coverage < LEAST:
            return "too few repeats"
        return "no" if self.low <= 0 <= self.high else "yes"


class Change(NamedTuple):
    """One figure of a row in both runs."""

    row: Row
    what: What
    unit: str
    before: float
    after: float
    shift: Shift

    def share(self, shift: float) -> float | None:
        """A shift as a share of A's median; None where that is 0."""
        return shift / abs(self.before) if self.before else None


class Comparison(NamedTuple):
    """All that is the same and all that differs of two runs."""

    changes: Sequence[Change]
    only_before: Sequence[Row]
    only_after: Sequence[Row]
    remarks: Sequence[str]


@cache
def _arrangements(first: int, second: int, below: int) -> int:
    """In how many orders of two samples do ``below`` pairs have the second's value below."""
    if below < 0:
        return 0
    if first == 0 or second == 0:
        return int(below == 0)
    return _arrangements(first - 1, second, below - second) + _arrangements(
        first, second - 1, below
    )


def shift_of(before: Sequence[float], after: Sequence[float]) -> Shift:
    """The median of all differences, and the interval that holds the true one."""
    differences = sorted(b - a for a in before for b in after)
    orders = comb(len(before) + len(after), len(before))
    outside = dropped = 0
    coverage = 0.0
    for count in range((len(differences) + 1) // 2):
        outside += _arrangements(len(before), len(after), count)
        covered = 1 - 2 * outside / orders
        if count and covered < WANTED:
            break
        dropped, coverage = count, covered
    low, high = differences[dropped], differences[len(differences) - 1 - dropped]
    return Shift(median(differences), low, high, max(0.0, coverage))


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
            shift = shift_of(before, after)
            yield Change(new, what, units[what], median(before), median(after), shift)


def _figures(row: Row, what: What) -> list[float]:
    """That figure of each repeat that has it."""
    take: Callable[[Sample], float | None]
    match what:
        case "value":
            take = attrgetter("value")
        case "processor time":
            take = attrgetter("cpu")
        case "ratio":
            take = _ratio
    return [figure for one in samples_of(row) if (figure := take(one)) is not None]


def _ratio(sample: Sample) -> float | None:
    return sample.value / sample.floor if sample.value is not None and sample.floor else None


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
        if one.row.figure == machine.FIGURE and one.shift.beyond_noise == "yes":
            yield (
                f"The machine differs ({one.row.name}, {one.what}: {_percent(one)}): "
                "ratios can be compared, times and rates hardly."
            )


# -- shown -----------------------------------------------------------------------------------------


def show(found: Comparison) -> None:
    """Print the comparison."""
    console = Console(width=None if sys.stdout.isatty() else 170)
    for remark in found.remarks:
        console.print(remark)
    console.print(table(found.changes))
    for where, rows in (("A", found.only_before), ("B", found.only_after)):
        for row in rows:
            console.print(f"Only in {where}: {row.figure}: {row.name}")
    decided = [one for one in found.changes if one.shift.beyond_noise != "too few repeats"]
    moved = sum(one.shift.beyond_noise == "yes" for one in decided)
    by_chance = sum(1 - one.shift.coverage for one in decided)
    console.print(
        f"{moved} of {len(decided)} figures changed beyond noise; "
        f"about {by_chance:.0f} would seem to if nothing had changed."
    )
    if len(decided) < len(found.changes):
        console.print(
            f"{len(found.changes) - len(decided)} figures have too few repeats to tell: "
            "--repeat 4 of both runs is enough."
        )


def table(changes: Sequence[Change]) -> Table:
    """The changes, row by row."""
    made = Table(title="A against B", title_justify="left")
    for heading in ("figure", "name", "of"):
        made.add_column(heading, overflow="fold")
    for heading in ("A", "B", "change", "interval", "holds"):
        made.add_column(heading, justify="right")
    made.add_column("beyond noise")
    last = ""
    for one in changes:
        if last and one.row.figure != last:
            made.add_section()
        verdict = one.shift.beyond_noise
        made.add_row(
            one.row.figure if one.row.figure != last else "",
            one.row.name,
            one.what,
            amount(one.before, one.unit),
            amount(one.after, one.unit),
            _percent(one),
            _interval(one),
            f"{one.shift.coverage:.0%}",
            f"[bold]{verdict}[/]" if verdict == "yes" else verdict,
        )
        last = one.row.figure
    return made


def _percent(one: Change) -> str:
    return _shifted(one, one.shift.middle)


def _interval(one: Change) -> str:
    if one.shift.low == one.shift.high:
        return ""
    return f"{_shifted(one, one.shift.low)} to {_shifted(one, one.shift.high)}"


def _shifted(one: Change, shift: float) -> str:
    share = one.share(shift)
    return f"{shift:+.3g} {one.unit}" if share is None else f"{share:+.1%}"
