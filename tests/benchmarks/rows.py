"""A row of the result: one figure, what it is held against, and whether it meets its target."""

from __future__ import annotations

from typing import Literal

import msgspec

Better = Literal["less", "more"]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What one repeat of a run measured of a row; the fields are those of the row."""

    value: float | None = None
    floor: float | None = None
    cpu: float | None = None
    floor_cpu: float | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """``value`` and ``floor`` are in ``unit``; ``floor`` is what ``against`` names, of this run.

    ``limit`` bounds ``value`` itself (in ``unit``) or, with a floor, the ratio of the two. A row
    without a limit is there for comparison and has no target.

    ``cpu`` and ``floor_cpu`` are the processor time of one operation of the subject and of the
    floor, in microseconds whatever ``unit`` is, of all threads of the process that does it. A rate
    has the microseconds of one of what it counts. They are None where no process is measured.

    ``samples`` holds one entry a repeat if the run repeated its modules; the row's own fields are
    their medians.
    """

    figure: str
    name: str
    value: float | None = None
    unit: str = ""
    against: str = ""
    floor: float | None = None
    limit: float | None = None
    better: Better = "less"
    note: str = ""
    cpu: float | None = None
    floor_cpu: float | None = None
    samples: tuple[Sample, ...] = ()

    @property
    def ratio(self) -> float | None:
        """``value`` over ``floor``."""
        return self.value / self.floor if self.value is not None and self.floor else None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none, or nothing was measured."""
        measured = self.value if self.floor is None else self.ratio
        if self.limit is None or measured is None:
            return None
        return measured <= self.limit if self.better == "less" else measured >= self.limit

    @property
    def target(self) -> str:
        """The target in words."""
        if self.limit is None:
            return ""
        sign = "≤" if self.better == "less" else "≥"
        if self.floor is None:
            return f"{sign} {amount(self.limit, self.unit)}"
        return f"{sign} {self.limit:g} ×"


def of_processor(row: Row) -> Row:
    """The row of a figure that is processor time itself, noted as such too.

    Its unit is µs or ms, or one of them for each of something. A floor is in the same unit.
    """
    micro = {"µs": 1.0, "ms": 1e3}[row.unit.partition("/")[0]]
    value, floor = (None if one is None else one * micro for one in (row.value, row.floor))
    return msgspec.structs.replace(row, cpu=value, floor_cpu=floor)


def missing(figure: str, name: str, why: str) -> Row:
    """A row for what could not be measured here."""
    return Row(figure=figure, name=name, note=why)


def amount(value: float, unit: str) -> str:
    """A number with its unit, in three digits."""
    if value >= 100:
        return f"{value:,.0f} {unit}".rstrip()
    return f"{value:.3g} {unit}".rstrip()
