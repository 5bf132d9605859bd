"""Run the figures, print the table, write the JSON."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path

from tests.benchmarks import report
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row

MODULES = (
    "one_append",
    "many_sessions",
    "growth",
    "opening",
    "preparing",
    "compacting",
    "replaying",
    "peers",
    "disk",
    "importing",
    "observing",
    "hosting",
    "whole_transcript",
    "cycle",
    "starting",
    "tokens",
    "evidence",
    "inspecting",
    "servers.postgres",
    "servers.jetstream",
    "servers.turns",
)
GROUPS = {"servers": [name for name in MODULES if name.startswith("servers.")]}
"""Names that stand for several modules."""


def main() -> None:
    options = _options()
    rows: list[Row] = []
    chosen = [name for one in options.only or MODULES for name in GROUPS.get(one, [one])]
    for name in chosen:
        measure: Callable[[Place], Awaitable[list[Row]]]
        measure = import_module(f"tests.benchmarks.{name}").measure
        print(f"… {name}", file=sys.stderr, flush=True)
        with Place(options.dir, options.quick) as place:
            rows += asyncio.run(_run(measure, place))
    made = report.document(rows, options.quick)
    path = options.json
    if path is None:
        stamp = made["at"].replace(":", "").partition("+")[0]
        path = Path("bench-results") / f"{stamp}.json"
    report.write(path, made)
    report.show(rows)
    print(f"Written to {path}")


async def _run(measure: Callable[[Place], Awaitable[list[Row]]], place: Place) -> list[Row]:
    return await measure(place)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("--quick", action="store_true", help="less of everything: under a minute")
    parser.add_argument(
        "--only",
        action="append",
        choices=(*MODULES, *GROUPS),
        metavar="NAME",
        help=", ".join((*MODULES, *GROUPS)),
    )
    parser.add_argument("--json", type=Path, help="where to write the result (bench-results/…)")
    parser.add_argument(
        "--dir", type=Path, default=Path.cwd(), help="whose disk to measure (the working directory)"
    )
    return parser.parse_args()


main()
