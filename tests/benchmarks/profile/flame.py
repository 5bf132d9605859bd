"""A flame graph as SVG: a box a function, as wide as its time, below the one that called it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.benchmarks.profile.stacks import Frame, Stack, room
from tests.benchmarks.svg import Drawing

WIDTH: Final = 1160
LINE: Final = 17
LEAST: Final = 0.003
"""Share of the whole below which a function is not drawn: nobody could point at it."""

LETTER: Final = 6.6
"""Pixels that a letter takes at most, on average."""

COLOURS: Final = {
    "session/": "#f6c177",
    "stores/": "#9ccfd8",
    "messages/": "#c4a7e7",
    "log/": "#ebbcba",
    "projections/": "#a3be8c",
    "policies/": "#f2a07b",
    "hooks/": "#d8c3a5",
    "asyncio": "#c9d1d9",
    "elsewhere": "#e6e9ed",
}


class _Box:
    """A function under its callers."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.micro = 0.0
        self.callees: dict[Frame, _Box] = {}

    def depth(self, least: float) -> int:
        """Lines that it and what it calls take, of those that are drawn."""
        drawn = [one.depth(least) for one in self.callees.values() if one.micro >= least]
        return 1 + max(drawn, default=0)


def drawn(stacks: Mapping[Stack, float], title: str) -> str:
    """The picture of one step: its stacks, and their microseconds."""
    whole = _Box(Frame(title, ""))
    for stack, micro in stacks.items():
        box = whole
        box.micro += micro
        for frame in stack:
            box = box.callees.setdefault(frame, _Box(frame))
            box.micro += micro
    least = LEAST * whole.micro
    drawing = Drawing(WIDTH, whole.depth(least) * LINE + 8, title)
    _draw(drawing, whole, 4.0, 4.0, (WIDTH - 8) / whole.micro, least)
    return str(drawing)


def _draw(drawing: Drawing, box: _Box, x: float, y: float, pixels: float, least: float) -> None:
    width = box.micro * pixels
    frame = box.frame
    words = f"{frame.function} {box.micro:,.1f} µs"
    where = f", {frame.file}" if frame.file else ""
    colour = COLOURS.get(room(frame), COLOURS["elsewhere"])
    drawing.box(x, y, max(width - 0.6, 0.4), LINE - 1, colour, f"{words}{where}")
    letters = int((width - 6) / LETTER)
    if letters > 3:
        shown = words if len(words) <= letters else frame.function
        shown = shown if len(shown) <= letters else f"{shown[: letters - 1]}…"
        drawing.text(x + 3, y + LINE - 5, shown)
    for callee in sorted(box.callees.values(), key=lambda one: -one.micro):
        if callee.micro >= least:
            _draw(drawing, callee, x, y + LINE, pixels, least)
        x += callee.micro * pixels
