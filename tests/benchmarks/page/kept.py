"""The run that the documentation shows: a row a line, four digits a figure, nothing empty."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from tests.benchmarks.report import Run

PATH: Final = Path(__file__).parents[1] / "results.json"
DIGITS: Final = 4


def write(run: Run) -> None:
    """Keep a run."""
    PATH.write_text(text(run), encoding="utf-8")


def text(run: Run) -> str:
    """The file of a run, which ``report.read`` reads again."""
    head = {
        "at": run.at,
        "quick": run.quick,
        "repeats": run.repeats,
        "machine": {name: value for name, value in run.machine.items() if value is not None},
    }
    rows = ",\n".join(_json(_short(msgspec.to_builtins(row))) for row in run.rows)
    return f'{_json(head)[:-1]},"rows":[\n{rows}\n]}}\n'


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _short(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case dict():
            return {name: _short(one) for name, one in value.items() if one not in (None, "", ())}
        case list() | tuple():
            return [_short(one) for one in value]
        case _:
            return value
