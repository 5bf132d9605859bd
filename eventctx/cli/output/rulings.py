"""A record's effect on a message, and its reason: in words, and as JSON with stable keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.table import Table
from rich.text import Text

from eventctx.cli.output import figures, numbers
from eventctx.cli.output.plain import minute_or, number
from eventctx.cli.output.screen import Screen, styled
from eventctx.log.plan import TAKEN_BACK
from eventctx.projections.explain.why import SIZES, Reason
from eventctx.projections.presence import describe_trigger

if TYPE_CHECKING:
    from eventctx.projections.explain.changes import Cause, CompactionFacts

Parts = list[str | tuple[str, str]]

LABEL: Final = 10
"""Characters of a label before a fact."""

_RECORDS: Final = {
    "context:messages_set": "a set of the transcript",
    "context:cleared": "a clear of the transcript",
    "context:restored": "a restore",
    "context:pinned": "a pin",
    "context:erased": "an erasure",
    "context:system_prompt_set": "the host's system prompt",
    "context:request_prepared": "the request",
}


def fact(screen: Screen, label: str, *parts: str | tuple[str, str]) -> None:
    """A line of a label and its text; on a terminal the text wraps in its own column."""
    text = styled(*parts)
    if not screen.live:
        click.echo(f"{label:<{LABEL}}{text.plain}")
        return
    grid = Table.grid(padding=0)
    grid.add_column(width=LABEL)
    grid.add_column(width=max(20, screen.width - LABEL), overflow="fold")
    grid.add_row(Text(label, "dim"), text)
    screen.console.print(grid)


def place_in_words(cause: Cause) -> str:
    """``@898 in 1.102``."""
    return numbers.place_in_words(cause.turn, cause.iteration, cause.position)


def cause_in_words(cause: Cause, undated: int | None = None) -> str:
    """The record in full: its kind, place and time, and of a compaction who requested it.

    ``undated`` is the time of records of an imported file that has none.
    """
    when = f"{place_in_words(cause)}, {minute_or(cause.time, undated)}"
    if cause.compaction is None:
        return f"{_RECORDS.get(cause.type, cause.type)} at {when}"
    if cause.compaction.strategy == TAKEN_BACK:
        return f"a step back at {when}, as the imported file says"
    return f"the compaction at {when}: {compaction_in_words(cause.compaction)}"


def compaction_in_words(one: CompactionFacts) -> str:
    """The trigger, the policy and the result of a compaction."""
    if one.trigger == "imported":
        program, _, how = (one.requested_by or "the program whose file was imported").partition(":")
        text = f"made by {program}{f' ({how})' if how else ''}"
        return f"{text}; {figures.compaction_tokens(one.figures)}"
    text = describe_trigger(one.trigger).clause
    if one.requested_by is not None:
        text += f", asked for by {one.requested_by}"
    if one.asked_because:
        text += f" because {one.asked_because!r}"
    text += f"; policy {one.strategy}"
    if one.fallback is not None:
        text += f", for which {one.fallback} decided ({one.error or 'no error was recorded'})"
    return f"{text}; {figures.compaction_tokens(one.figures)}"


def rule_in_words(ruling: Reason) -> str:
    """The reason code and its meaning."""
    if not ruling.reason:
        return "the plan does not say why"
    return f"{ruling.reason}: {ruling.rule or 'a code that this release does not know'}"


def settings_in_words(ruling: Reason) -> str:
    """The settings that govern a rule, with their values at that time."""
    if not ruling.settings:
        imported = ruling.reason in ("imported", TAKEN_BACK)
        return "not in the imported file" if imported else "none govern this rule"
    return ", ".join(_setting(name, value) for name, value in ruling.settings.items())


def _setting(name: str, value: Any) -> str:
    if name in SIZES:
        return f"{name} {number(value)} tokens"
    return f"{name}={msgspec.json.encode(value).decode()}"
