"""Several runs of the same modules as one: medians, with what each repeat measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from tests.benchmarks.rows import Row, Sample

_MEASURED = Sample.__struct_fields__


class Key(NamedTuple):
    """What a row is found by in another run: a figure may have several rows of one name."""

    figure: str
    name: str
    number: int


def keyed(rows: Iterable[Row]) -> dict[Key, Row]:
    """Rows by their key, in their order."""
    found: dict[Key, Row] = {}
    for row in rows:
        key = Key(row.figure, row.name, 0)
        while key in found:
            key = key._replace(number=key.number + 1)
        found[key] = row
    return found


def samples_of(row: Row) -> Sequence[Sample]:
    """What each repeat measured; a run without repeats is one."""
    return row.samples or (Sample(**{name: getattr(row, name) for name in _MEASURED}),)


def combined(repeats: Sequence[Iterable[Row]]) -> list[Row]:
    """The rows of all repeats: each row's figures are the medians of those that measured it.

    Its words are those of the repeat in the middle, so that a note fits the value next to it.
    """
    by_key: dict[Key, list[Row]] = {}
    for rows in repeats:
        for key, row in keyed(rows).items():
            by_key.setdefault(key, []).append(row)
    return [_middle(rows) if len(repeats) > 1 else rows[0] for rows in by_key.values()]


def _middle(rows: Sequence[Row]) -> Row:
    measured = [row for row in rows if row.value is not None]
    measured.sort(key=lambda row: row.value or 0.0)
    if not measured:
        return rows[0]
    samples = tuple(sample for row in rows for sample in samples_of(row))
    medians = {name: _median(getattr(one, name) for one in samples) for name in _MEASURED}
    return msgspec.structs.replace(measured[len(measured) // 2], samples=samples, **medians)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
