"""Keep a run as the one that the documentation shows, and write its pages and pictures."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.benchmarks import report
from tests.benchmarks.blocks import filled
from tests.benchmarks.page import kept, plots, tables

_ROOT = Path(__file__).parents[3]
PAGES = (
    _ROOT / "docs" / "reference" / "benchmarks.md",
    _ROOT / "tests" / "benchmarks" / "FIGURES.md",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.page")
    parser.add_argument(
        "run", nargs="?", type=Path, metavar="RUN.json", help="of a run; else the one that is kept"
    )
    given = parser.parse_args().run
    if given is not None:
        kept.write(report.read(given))
    run = report.read(kept.PATH)
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8"), "bench", tables.made(run)), "utf-8")
    for name, picture in plots.made(run).items():
        (plots.FOLDER / name).write_text(picture, "utf-8")
    print(f"wrote {', '.join(map(str, PAGES))}")


if __name__ == "__main__":
    main()
