"""The little of SVG that the pictures of figures need: boxes, lines, words, and a scale.

Written by hand and not by a plotting library: four shapes are all there is, a file is some kB of
text that differs only where a figure does, and nothing has to be installed.
"""

from __future__ import annotations

import math
from html import escape
from typing import Final, NamedTuple

INK: Final = "#24292f"
PALE: Final = "#d0d7de"
FONT: Final = "font-family='Helvetica, Arial, sans-serif'"


class Drawing:
    """Shapes in pixels from the upper left corner, on white paper."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            (
                f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
                f"viewBox='0 0 {width} {height}' {FONT} font-size='12'>"
            ),
            f"<title>{escape(title)}</title>",
            f"<rect width='{width}' height='{height}' fill='#ffffff'/>",
        ]

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, title: str = ""
    ) -> None:
        """A filled box; ``title`` is shown to who points at it."""
        inside = f"<title>{escape(title)}</title>" if title else ""
        self._parts.append(
            f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' "
            + (f"fill='{fill}'>{inside}</rect>" if inside else f"fill='{fill}'/>")
        )

    def dot(self, x: float, y: float, fill: str, title: str) -> None:
        """A point of a figure."""
        self._parts.append(
            f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' fill='{fill}' fill-opacity='0.7'>"
            f"<title>{escape(title)}</title></circle>"
        )

    def line(self, *points: tuple[float, float], stroke: str = PALE, width: float = 1) -> None:
        """A line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(
            f"<polyline points='{path}' fill='none' stroke='{stroke}' stroke-width='{width:g}'/>"
        )

    def text(self, x: float, y: float, words: str, anchor: str = "start", fill: str = INK) -> None:
        """Words whose baseline is at ``y``; ``anchor`` is start, middle or end."""
        self._parts.append(
            f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{fill}'>"
            f"{escape(words)}</text>"
        )

    def __str__(self) -> str:
        return "\n".join([*self._parts, "</svg>\n"])


class LogScale(NamedTuple):
    """Places values of ``low`` to ``high`` on pixels ``start`` to ``end``, each decade as long."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: list[float], start: float, end: float) -> LogScale:
        """A scale of whole decades that holds all values, which must be above 0."""
        low, high = min(values), max(values)
        first = math.floor(math.log10(low))
        return cls(10.0**first, 10.0 ** max(first + 1, math.ceil(math.log10(high))), start, end)

    def at(self, value: float) -> float:
        """The pixel of a value; one beyond an end is drawn at that end."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """The powers of ten on the scale."""
        first, last = (round(math.log10(end)) for end in (self.low, self.high))
        return [10.0**power for power in range(first, last + 1)]
