"""Two requests next to each other: their tokens, and sections of what only one of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from eventctx.cli.output import figures
from eventctx.cli.output.opening import request_in_words
from eventctx.cli.output.plain import number
from eventctx.cli.output.reasons import place_in_words
from eventctx.cli.output.screen import Column, Screen, styled
from eventctx.projections.explain.view_diff import GROUPS

if TYPE_CHECKING:
    from rich.text import Text

    from eventctx.projections.explain.why import Reason
    from eventctx.queries.explain_answers import Side

WIDE: Final = 120
"""Characters of a line from which on the two requests are shown side by side."""

LISTED: Final = 12
"""Messages of a kind that a terminal lists without ``--full``."""

_GROUPS: Final = {
    "system": "system messages",
    "human": "what people wrote",
    "user": "texts of programs in role user",
    "assistant": "what the model wrote",
    "result": "tool results",
    "other": "others",
    "inserted": "prompt, summaries, notices, memory",
    "made_up": "made-up results",
}
_BESIDE: Final = "beside: system prompt, tools"


class Section(NamedTuple):
    """A kind of difference with its reason, and a line for each message that it applies to."""

    sign: str
    title: str
    items: list[str]


def where(side: Side) -> str:
    """The request in words."""
    return request_in_words(side.turn, side.iteration, side.position)


def item_width(screen: Screen) -> int | None:
    """Cells of an item's line: half of a wide terminal; None: as long as it is."""
    if not screen.live:
        return None
    return (screen.width - 4) // 2 if screen.width >= WIDE else screen.width


def show_sections(screen: Screen, losses: list[Section], gains: list[Section], full: bool) -> None:
    """Sections below each other, or side by side on a wide terminal."""
    width = item_width(screen)
    if not losses and not gains:
        screen.line("Both show the same.")
    elif width is not None and screen.width >= WIDE:
        _side_by_side(screen, losses, gains, width, full)
    else:
        for section in (*losses, *gains):
            for line in _lines(section, full or not screen.live):
                screen.line(_cut(line, width))
            screen.blank()


def show_tokens(screen: Screen, before: Side, after: Side, titles: tuple[str, str]) -> None:
    """A table of tokens by kind of message, with a column for each request."""
    was, now = before.figures, after.figures
    rows = [
        [_GROUPS[name], *_estimates(before.groups.get(name, 0), after.groups.get(name, 0))]
        for name in GROUPS
        if before.groups.get(name) or after.groups.get(name)
    ]
    if was.beside is None or now.beside is None:
        rows.append([_BESIDE, figures.beside_tokens(was), figures.beside_tokens(now), "–"])
    elif was.beside or now.beside:
        rows.append([_BESIDE, *_estimates(was.beside, now.beside)])
    change = _change(was.total, now.total)
    rows.append(["all tokens", figures.request_tokens(was), figures.request_tokens(now), change])
    rows.append(["messages", number(before.entries), number(after.entries)])
    rows[-1].append(_change(before.entries, after.entries))
    columns = [
        Column(""),
        *[Column(title, right=True) for title in titles],
        Column("change", right=True, style="bold"),
    ]
    screen.table(columns, rows)


def _estimates(before: int, after: int) -> list[str]:
    return [figures.tokens(before, True), figures.tokens(after, True), _change(before, after)]


def _change(before: int, after: int) -> str:
    return f"{after - before:+,}" if after != before else "="


def reason_words(ruling: Reason | None) -> str:
    """The rule and its place, as the end of a heading; empty without one."""
    if ruling is None:
        return ""
    rule = f": {ruling.reason}, {ruling.rule}" if ruling.rule else ""
    return f"{rule}; {place_in_words(ruling.cause)}"


def _lines(section: Section, full: bool) -> list[list[str | tuple[str, str]]]:
    style = {"−": "bold red", "+": "bold green"}.get(section.sign, "bold yellow")
    shown = section.items if full or len(section.items) <= LISTED + 1 else section.items[:LISTED]
    lines: list[list[str | tuple[str, str]]] = [[(f"{section.sign} {section.title}", style)]]
    lines += [[item] for item in shown]
    if len(shown) < len(section.items):
        rest = len(section.items) - len(shown)
        lines.append([(f"  … {rest:,} more (--full lists them)", "dim")])
    return lines


def _cut(line: list[str | tuple[str, str]], width: int | None) -> Text:
    """A line of a list, cut to the width in terminal cells, because wide signs take two."""
    text = styled(*line)
    if width is not None and text.plain.startswith("  "):
        text.truncate(width, overflow="ellipsis")
    return text


def _side_by_side(
    screen: Screen, losses: list[Section], gains: list[Section], width: int, full: bool
) -> None:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2), pad_edge=False)
    grid.add_column(width=width, overflow="fold")
    grid.add_column(width=width, overflow="fold")
    columns = []
    for sections in (losses, gains):
        text = Text()
        for section in sections:
            for line in _lines(section, full):
                text.append_text(_cut(line, width))
                text.append("\n")
            text.append("\n")
        text.rstrip()
        columns.append(text)
    grid.add_row(*columns)
    screen.console.print(grid)
    screen.blank()
