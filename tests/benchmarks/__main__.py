"""Run the figures, print the table, write the JSON."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.benchmarks import report
from tests.benchmarks.rows import Row, combined, in_order, missing
from tests.benchmarks.timing import Place

MODULES = (
    *("starting", "appending", "cycle", "observing", "adapting", "questions", "inspecting"),
    *("importing", "peers", "servers", "disk"),
)
FAILED = "failed"


def main() -> int:
    options = _options()
    if options.compare:
        before, after = map(report.read, options.compare)
        report.show_comparison(report.compare(before, after))
        return 0
    if options.page:
        report.PAGE.write_text(
            report.with_table(report.PAGE.read_text(), report.read(options.page))
        )
        return 0
    # Repeat by repeat and not module by module: what else the machine does then falls on all.
    repeats = []
    for _ in range(options.repeat):
        with Place(options.dir, options.quick) as run:
            repeats.append([row for name in options.only or MODULES for row in _rows(name, run)])
    rows = in_order(combined(repeats))
    made = report.document(rows, options.quick, options.repeat)
    path = options.json
    if path is None:
        stamp = made["at"].replace(":", "").partition("+")[0]
        path = Path("bench-results") / f"{stamp}.json"
    report.write(path, made)
    report.show(rows)
    print(f"Written to {path}")
    return int(any(row.note.startswith(FAILED) for row in rows))


def _rows(name: str, run: Place) -> list[Row]:
    """The rows of a module. If it fails, one row that says so: the others' work is not lost."""
    print(f"… {name}", file=sys.stderr, end="", flush=True)
    began = time.perf_counter()
    with run.inner() as place:
        try:
            measure: Callable[[Place], Coroutine[Any, Any, list[Row]]]
            measure = import_module(f"tests.benchmarks.{name}").measure
            return asyncio.run(measure(place))
        except Exception as error:
            traceback.print_exc()
            return [missing(name, "the whole module", f"{FAILED}: {error!r}")]
        finally:
            print(f" {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    add = parser.add_argument
    add("--quick", action="store_true", help="less of everything: some minutes")
    add("--only", action="append", choices=MODULES, metavar="NAME", help=", ".join(MODULES))
    add("--json", type=Path, help="where to write the result (bench-results/…)")
    add("--dir", type=Path, default=Path.cwd(), help="whose disk to measure (the current one's)")
    add("--repeat", type=int, default=1, metavar="N", help="run it all N times and take medians")
    two = "run nothing, and say what changed between two runs"
    add("--compare", nargs=2, type=Path, metavar=("A.json", "B.json"), help=two)
    one = "run nothing; write a run's table to the docs"
    add("--page", type=Path, metavar="A.json", help=one)
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error(f"--repeat: expected 1 or more, found {options.repeat}")
    return options


if __name__ == "__main__":
    sys.exit(main())
