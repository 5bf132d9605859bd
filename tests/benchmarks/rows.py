"""Rows of the result, and what is wanted of the library's speed.

Times of the library alone are processor time, of all threads and of the system for it, so that a
busy machine moves them little. All else is a ratio to something that is measured in turns with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final, Literal, NamedTuple

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
    floor, in microseconds whatever ``unit`` is, of all threads of the process that does it. They
    are None where no process is measured, or where the value is processor time itself.

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
        if not self.against:
            return f"{sign} {amount(self.limit, self.unit)}"
        return f"{sign} {self.limit:g} ×"


def missing(figure: str, name: str, why: str) -> Row:
    return Row(figure=figure, name=name, note=why)


def amount(value: float, unit: str) -> str:
    """A number with its unit, in three digits."""
    if value >= 100:
        return f"{value:,.0f} {unit}".rstrip()
    return f"{value:.3g} {unit}".rstrip()


# -- repeats ---------------------------------------------------------------------------------------

_MEASURED = Sample.__struct_fields__


class Key(NamedTuple):
    """What a row is found by in another run: a figure may have several rows of one name."""

    figure: str
    name: str
    number: int


def keyed(rows: Iterable[Row]) -> dict[Key, Row]:
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


# -- targets ---------------------------------------------------------------------------------------


FIGURE: Final = "targets"


class Target(NamedTuple):
    """``limit`` is in ``unit``; with ``against`` it bounds the ratio to that."""

    name: str
    unit: str
    limit: float
    against: str = ""
    better: Better = "less"


_TARGETS: Final = {
    "import": Target("import Claude Code JSONL", "ms/MB", 45),
    "two cores": Target("import a folder on two cores", "MB/s", 1.7, "on one core", "more"),
    "unchanged": Target("import a folder of 300 sessions again, unchanged", "s", 0.5),
    "calls": Target("import a file of 400 unrelated calls", "s", 2),
    "first question": Target("first question ever, 100,000 messages", "s", 4),
    "with frames": Target("the same, where key frames were written as it went", "s", 0.2),
    "first search": Target("first search ever, 100,000 messages", "s", 3),
    "views": Target("transcript, why or a past view, 100,000 messages", "s", 0.15),
    "open": Target("first eventctx.open() of a file, one message", "ms", 100),
    "help": Target("the slowest --help of a command", "ms", 150),
    "paint": Target("first paint of a session's page, on the wall", "ms", 400),
    "shell": Target("an exported page without its session", "kB", 80),
    "load": Target("load 10,000 messages cold", "/s", 0.9, "openai-agents", "more"),
    "append": Target("a durable append at 10,000 messages", "/s", 1.0, "openai-agents", "more"),
    "add": Target("ctx.add_message, beside the write", "µs", 170),
    "sessions": Target("100 sessions, ctx.add_message", "messages/s", 6, "aiosqlite", "more"),
    "model call": Target(
        "an adapter's part of a model call", "µs", 1, "two durable appends + 1 ms"
    ),
    "cycle 20": Target("Amplifier's cycle, 20 messages", "µs", 1.6, "context-simple"),
    "cycle 100": Target("Amplifier's cycle, 100 messages", "µs", 1.0, "context-simple"),
    "log sink": Target("the log sink, an event", "µs", 2, "a structlog JSON line"),
    "span sink": Target("the span sink, a span", "µs", 1.5, "an SDK span, batched"),
    "verify": Target("verify with facts", "µs/record", 10),
    "mcp": Target("a call about a message of 50 MB through MCP", "s", 0.5),
}


def target(key: str, value: float, floor: float | None = None, note: str = "") -> Row:
    """The row of a target; ``floor`` is what its ``against`` takes, in the same unit."""
    of = _TARGETS[key]
    fields = of._asdict()
    return Row(figure=FIGURE, value=value, floor=floor, note=note, **fields)


def unmeasured(key: str, why: str) -> Row:
    return missing(FIGURE, _TARGETS[key].name, why)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Targets in the order above, then the other figures in that of their modules."""
    places = {of.name: place for place, of in enumerate(_TARGETS.values())}
    return sorted(
        rows, key=lambda row: places.get(row.name, 0) if row.figure == FIGURE else len(places)
    )


def name_of(key: str) -> str:
    return _TARGETS[key].name
