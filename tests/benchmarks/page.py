"""The table of ``docs/reference/benchmarks.md``: what a user pays, and what neighbours take."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Final

from tests.benchmarks.peers import LENGTH, OURS, PEERS
from tests.benchmarks.report import Run
from tests.benchmarks.rows import amount
from tests.benchmarks.targets import name_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "benchmarks.md"

_WITH_PEERS: Final = {
    "append": f"add a message, durably, to {LENGTH:,}",
    "load": f"load {LENGTH:,} messages into a fresh object",
    "prepare": f"prepare the next request of {LENGTH:,} messages",
}
_ALONE: Final = ("open", "model call", "import", "first question", "first search", "views", "mcp")


def table(run: Run) -> str:
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
    return "".join([*parts[:place], table(run) + "\n", *parts[place + 1 :]])
