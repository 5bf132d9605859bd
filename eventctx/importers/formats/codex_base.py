"""The file in which a Codex rollout's history begins, where ``history_base`` names another one.

A rollout with paginated history does not repeat what it goes on from: its head names the thread and
the first ``ordinal`` that no longer counts. The lines before that one are read from the file of the
thread, behind the head, as if they stood there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from eventctx.importers.source.items import FileLine
from eventctx.importers.source.lines import (
    PAUSE,
    object_or_empty,
    read_lines,
    text_or_none,
    unreadable,
)
from eventctx.importers.source.values import read_value

_MOST_BASES = 32
"""A thread that was reverted more often begins in the middle."""


class HistoryBase(NamedTuple):
    """The thread that a rollout goes on from, and the ordinal behind the last line that counts."""

    thread: str
    end: int


def base_of(payload: dict[str, Any]) -> HistoryBase | None:
    """The base that a ``session_meta`` names; None where the file holds all of its history."""
    base = object_or_empty(payload.get("history_base"))
    thread, end = text_or_none(base.get("thread_id")), base.get("end_ordinal_exclusive")
    return HistoryBase(thread, end) if thread and type(end) is int and end > 0 else None


def with_base(path: Path, lines: Iterable[FileLine]) -> Iterator[FileLine]:
    """The lines of a rollout, those of its base behind the first one. Raises UnreadableFile."""
    source = iter(lines)
    first = next(source, None)
    base = None if first is None else _base(first)
    if first is None or base is None:
        yield from source if first is None else chain((first,), source)
        return
    yield first
    added = 0
    try:
        for line in _lines_of(path, base, _MOST_BASES):
            added += 1
            yield line._replace(number=1 + added, terminated=True)
    except OSError as error:
        raise unreadable(path, error) from error
    for line in source:
        yield line if line is PAUSE else line._replace(number=line.number + added)


def _lines_of(path: Path, base: HistoryBase, most: int) -> Iterator[FileLine]:
    """The lines of a base, and of what it goes on from itself."""
    file = _file_of(path, base)
    if file is None or most == 0:
        return
    for line in read_lines(file):
        row = _row(line)
        ordinal = row.get("ordinal")
        if type(ordinal) is int and ordinal >= base.end:
            return
        yield line
        before = _base(line) if line.number == 1 else None
        if before is not None:
            yield from _lines_of(file, before, most - 1)


def _file_of(path: Path, base: HistoryBase) -> Path | None:
    """The newest file of the thread, older than this one, that has the last line that counts."""
    named = f"*{base.thread}*.jsonl"
    found = {*path.parent.glob(named), *_root(path).glob(f"*/*/*/{named}")}
    older = sorted((one for one in found if one.name < path.name), key=lambda one: one.name)
    return next((one for one in reversed(older) if _holds(one, base.end - 1)), None)


def _root(path: Path) -> Path:
    """Codex keeps its files by year, month and day."""
    days = path.parent.parts[-3:]
    return path.parents[3] if len(days) == 3 and all(map(str.isdigit, days)) else path.parent


def _holds(path: Path, ordinal: int) -> bool:
    mark = b'"ordinal"'
    rows = (_row(line) for line in read_lines(path) if mark in line.data)
    return any(row.get("ordinal") == ordinal and row.get("type") != "session_meta" for row in rows)


def _base(line: FileLine) -> HistoryBase | None:
    row = _row(line)
    payload = object_or_empty(row.get("payload"))
    return base_of(payload) if row.get("type") == "session_meta" else None


def _row(line: FileLine) -> dict[str, Any]:
    try:
        return object_or_empty(read_value(line.data)[0])
    except ValueError:
        return {}
