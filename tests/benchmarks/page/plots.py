"""The pictures of docs/reference/benchmarks.md: targets, neighbours, and growth."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.report import Run
from tests.benchmarks.rows import Row, amount
from tests.benchmarks.svg import INK, PALE, Drawing, LogScale

FOLDER: Final = Path(__file__).parents[3] / "docs" / "pictures"
WIDTH: Final = 860
MARGIN: Final = 250
"""Pixels on the left for names."""

LINE: Final = 22
COLOURS: Final = (
    "#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf8700", "#cf222e",
    "#57606a", "#1b7c83", "#bf3989", "#24292f", "#7d8590", "#4ac26b",
)  # fmt: skip
MET, MISSED = "#1a7f37", "#cf222e"


def made(run: Run) -> dict[str, str]:
    """Each picture by its file's name."""
    return {name: draw(run.rows) for name, draw in PICTURES.items()}


# -- every target ----------------------------------------------------------------------------------


def _targets(rows: Sequence[Row]) -> str:
    """A dot a target: how many times its limit the figure took, figure by figure."""
    by_figure: dict[str, list[tuple[float, Row]]] = {}
    for row in rows:
        share = _share_of_limit(row)
        if share:
            by_figure.setdefault(row.figure, []).append((share, row))
    scale = LogScale(0.1, 10.0, MARGIN, WIDTH - 40)
    height = 60 + LINE * len(by_figure)
    drawn = Drawing(WIDTH, height, "Every target: what was measured over what is allowed")
    for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10):
        place = scale.at(tick)
        drawn.line((place, 30), (place, height - 26), stroke=INK if tick == 1 else PALE)
        beyond = {0.1: "≤ ", 10: "≥ "}.get(tick, "")
        drawn.text(place, height - 10, f"{beyond}{tick:g} ×", "middle")
    drawn.text(scale.at(1), 20, "the limit; left of it, a target is met", "middle")
    for number, (figure, found) in enumerate(by_figure.items()):
        y = 44 + LINE * number
        drawn.text(MARGIN - 12, y + 4, figure, "end")
        for share, row in found:
            title = f"{row.name}: {share:.2f} of the limit"
            drawn.dot(scale.at(share), y, MET if row.met else MISSED, title)
    return str(drawn)


def _share_of_limit(row: Row) -> float | None:
    measured = row.value if row.floor is None else row.ratio
    if row.limit is None or measured is None or measured <= 0 or row.limit <= 0:
        return None
    return measured / row.limit if row.better == "less" else row.limit / measured


# -- neighbours ------------------------------------------------------------------------------------

_PEER: Final = re.compile(r"(?P<who>.+): (?P<what>\w+) at (?P<length>[\d,]+)")


def _peers(rows: Sequence[Row]) -> str:
    """A bar for each neighbour, by what is done and at what length, on a scale of decades."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        found = _PEER.fullmatch(row.name) if row.figure == "peers" else None
        if found is not None and row.value:
            name = f"{found['what']}, {found['length']} messages"
            groups.setdefault(name, []).append((found["who"], row.value))
    if not groups:
        return _empty("Neighbours")
    everybody = list(dict.fromkeys(who for bars in groups.values() for who, _ in bars))
    scale = LogScale.around([ms for bars in groups.values() for _, ms in bars], MARGIN, WIDTH - 90)
    height = 50 + sum(16 * len(bars) + 30 for bars in groups.values())
    drawn = Drawing(WIDTH, height, "Milliseconds of an append, a load and a preparation")
    _decades(drawn, scale, height, "ms")
    y = 16.0
    for name, bars in groups.items():
        drawn.text(12, y + 8, name)
        y += 14
        for who, ms in bars:
            colour = COLOURS[everybody.index(who) % len(COLOURS)]
            drawn.text(MARGIN - 8, y + 11, who[:38], "end")
            drawn.box(MARGIN, y + 1, scale.at(ms) - MARGIN, 13, colour, f"{who}: {ms:.3g} ms")
            drawn.text(scale.at(ms) + 5, y + 11, amount(ms, "ms"))
            y += 16
        y += 16
    return str(drawn)


def _decades(drawn: Drawing, scale: LogScale, height: int, unit: str) -> None:
    for tick in scale.ticks():
        drawn.line((scale.at(tick), 10), (scale.at(tick), height - 24))
        drawn.text(scale.at(tick), height - 8, f"{tick:,g} {unit}", "middle")


# -- by the length of a session --------------------------------------------------------------------


class Point(NamedTuple):
    """A figure at a length."""

    length: int
    micro: float


_BY_LENGTH: Final = "by length"
_LENGTH: Final = re.compile(r"(?P<what>.+): (?P<length>[\d,]+) messages")
_MICRO: Final = {"µs": 1.0, "ms": 1e3, "s": 1e6}


def _growth(rows: Sequence[Row]) -> str:
    """Lines of what has been measured at several lengths; a flat line costs the same at any."""
    lines = {name: points for name, points in _lines(rows).items() if len(points) > 1}
    if not lines:
        return _empty("Growth")
    every = [point for points in lines.values() for point in points]
    height = 380 + LINE * len(lines)
    across = LogScale.around([point.length for point in every], 80, WIDTH - 70)
    up = LogScale.around([point.micro for point in every], 330, 20)
    drawn = Drawing(WIDTH, height, "Time by the length of the session")
    for tick in across.ticks():
        drawn.line((across.at(tick), 20), (across.at(tick), 330))
        drawn.text(across.at(tick), 348, f"{tick:,.0f} messages", "middle")
    for tick in up.ticks():
        drawn.line((80, up.at(tick)), (WIDTH - 70, up.at(tick)))
        drawn.text(72, up.at(tick) + 4, _time(tick), "end")
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [(across.at(one.length), up.at(one.micro)) for one in sorted(points)]
        drawn.line(*places, stroke=colour, width=2)
        for place, one in zip(places, sorted(points), strict=True):
            drawn.dot(*place, colour, f"{name}, {one.length:,} messages: {one.micro:,.3g} µs")
        drawn.box(80, 362 + LINE * number, 12, 12, colour)
        drawn.text(100, 373 + LINE * number, name)
    return str(drawn)


def _time(micro: float) -> str:
    """A power of ten of microseconds, in the unit that needs no more than three digits."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if micro >= size:
            return f"{micro / size:,g} {unit}"
    return f"{micro:g} µs"


def _lines(rows: Sequence[Row]) -> Mapping[str, list[Point]]:
    lines: dict[str, list[Point]] = {}
    for row in rows:
        found = _LENGTH.fullmatch(row.name) if row.figure == _BY_LENGTH else None
        if found is not None and row.unit in _MICRO and row.value and row.value > 0:
            point = Point(int(found["length"].replace(",", "")), row.value * _MICRO[row.unit])
            lines.setdefault(found["what"].strip(), []).append(point)
    return lines


def _empty(title: str) -> str:
    drawn = Drawing(WIDTH, 60, title)
    drawn.text(20, 36, f"{title}: not measured in this run.")
    return str(drawn)


PICTURES: Final = {
    "bench-targets.svg": _targets,
    "bench-peers.svg": _peers,
    "bench-growth.svg": _growth,
}
"""The files in ``FOLDER``, and what draws them."""
