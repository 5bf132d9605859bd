"""What is wanted of the library's speed: a row each, in the order in which a run prints them.

Times of the library alone are processor time, of all threads and of the system for it, so that a
busy machine moves them little. All else is a ratio to something that is measured in turns with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.benchmarks.rows import Better, Row, missing

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
    """The row of a target that cannot be measured here."""
    return missing(FIGURE, _TARGETS[key].name, why)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Targets in the order above, then the other figures in that of their modules."""
    places = {of.name: place for place, of in enumerate(_TARGETS.values())}
    return sorted(
        rows, key=lambda row: places.get(row.name, 0) if row.figure == FIGURE else len(places)
    )


def name_of(key: str) -> str:
    """The name of a target's row."""
    return _TARGETS[key].name
