"""docs/explanation/what-is-tested.md names every fault, its test, and the counts of this folder."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults.counts import COUNTS
from tests.faults.histories import RULES

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "explanation" / "what-is-tested.md"
_ROW = re.compile(
    r"^\| (?P<fault>[a-z ]+) \| .+ \| \[`(?P<test>\w+\.py)`\]\(\S+\) "
    r"\| (?P<small>[\d,]+) \| (?P<full>[\d,]+) \| .+ \|$",
    flags=re.MULTILINE,
)


def test_the_page_has_the_counts_of_every_fault() -> None:
    rows = {row["fault"]: row for row in _ROW.finditer(PAGE.read_text(encoding="utf-8"))}
    shown = {
        fault: (int(row["small"].replace(",", "")), int(row["full"].replace(",", "")))
        for fault, row in rows.items()
    }
    assert shown == COUNTS
    for fault, row in rows.items():
        assert f'"{fault}"' in (FOLDER / row["test"]).read_text(encoding="utf-8"), fault


def test_the_page_names_every_guard_that_is_taken_away() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for file in ("test_the_faults_are_found.py", "test_server_faults_are_found.py"):
        tests = (FOLDER / file).read_text(encoding="utf-8")
        for name in re.findall(r"^(?:async )?def (test_\w+)", tests, flags=re.MULTILINE):
            assert f"`{name}`" in page, name


def test_the_page_names_every_rule_of_histories() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [rule for rule in RULES if f"*{rule}*" not in page] == []
