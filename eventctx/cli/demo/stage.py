"""Shared parts of the demonstrations: session names, compactions, and commands to try next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

from eventctx.cli.commands.audit import compaction_line
from eventctx.cli.output import opening
from eventctx.cli.output.program import spelling
from eventctx.cli.output.records import reason_in_words
from eventctx.cli.output.screen import Screen
from eventctx.log.codec import decode_event
from eventctx.log.plan import Plan, expand
from eventctx.log.record import Record
from eventctx.projections.audit import CompactionRow
from eventctx.projections.figures import CompactionFigures
from eventctx.text import without_password


class Compactions:
    """Prints each compaction, with the messages that the one before it did not affect."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._plan: Plan | None = None

    def compacted(self, record: Record) -> None:
        """A compaction ended: called by the engine's hooks, as any observer of yours would be."""
        event: Any = decode_event(record)
        row = CompactionRow(
            record.position, record.time, None, record.iteration, event.outcome, event.trigger,
            event.strategy, event.tokens_before, event.tokens_after, event.messages_before,
            event.messages_after, event.budget, event.duration, event.fallback, event.error,
            CompactionFigures(event.tokens_before, True, event.tokens_after, True),
        )  # fmt: skip
        line = compaction_line(row)
        self._screen.line(*[_unbroken(part) for part in line], indent=2)
        if event.plan is not None:
            for reason, count in _reasons(event.plan, self._plan).items():
                self._screen.line((f"{count} {reason}", "dim"), indent=6)
            self._plan = event.plan


def _unbroken(part: str | tuple[str, str]) -> str | tuple[str, str]:
    return part.rstrip("\n") if isinstance(part, str) else part


def _reasons(plan: Plan, before: Plan | None) -> dict[str, int]:
    """Counts, by disposition and reason, of messages that only the later plan changes."""
    known = {
        one: disposition
        for one, disposition, _ in expand(before.runs if before is not None else ())
    }
    found: Counter[str] = Counter()
    for one, disposition, reason in expand(plan.runs):
        if disposition != "kept" and known.get(one) != disposition:
            found[f"{disposition}: {reason_in_words(reason)}"] += 1
    return dict(found)


def show_commands(screen: Screen, url: str, commands: Sequence[tuple[str, str]]) -> None:
    """Print commands to try next, given as pairs of a text and a command without ``--store``."""
    program = spelling()
    path = opening.path_of(url)
    # Absolute, so that the commands work from any folder.
    shown = without_password(url) if path is None else str(path.absolute())
    where = f"--store {shlex.quote(shown)}"
    screen.blank()
    screen.line(("Try next", "bold"))
    for text, command in commands:
        screen.line((f"# {text}", "dim"))
        # Unindented and unbroken, so that a long path leaves a line that can be copied.
        own = command == "demo FILE"
        screen.whole((f"{program} {command}" if own else f"{program} {command} {where}", "cyan"))
