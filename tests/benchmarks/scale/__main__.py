"""Measure, keep what was measured, and write the page's tables."""

from __future__ import annotations

import argparse

from tests.benchmarks.scale import measure, page


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scale")
    parser.add_argument(
        "what", nargs="?", choices=("measure", "page", "all"), default="all", help="all"
    )
    parser.add_argument("--quick", action="store_true", help="less of everything, and kept nowhere")
    given = parser.parse_args()
    if given.what != "page":
        found = measure.measure(given.quick)
        if given.quick:
            for name, table in page.TABLES.items():
                print(f"{name}\n\n{table(found, page.Assumptions())}")
            return
        measure.write(found)
    if given.what != "measure":
        text = page.PAGE.read_text(encoding="utf-8")
        page.PAGE.write_text(page.written(text, measure.read()), encoding="utf-8")
        print(f"wrote {page.PAGE}")


main()
