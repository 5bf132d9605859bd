"""The table of sessions: as much of it as fits the terminal, all of it in a pipe."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from eventctx.cli.output.figures import tokens
from eventctx.cli.output.plain import number, one_line, plural
from eventctx.cli.output.screen import Column, Screen
from eventctx.log.naming import position_name
from eventctx.queries.session_list import ListedSession, Summed
from eventctx.queries.session_names import short_names
from eventctx.text import pattern

_MIDDLE: Final = 100
"""Columns of a terminal from which project and model are shown."""
_WIDE: Final = 140
"""Columns from which titles of columns are whole words, and times have a time of day."""
_LEAST_TITLE: Final = 8
_MOST_PROJECT: Final = 20
_MOST_MODEL: Final = 20
_TITLE: Final = 1
"""The place of the title among the columns."""

_DATE: Final = pattern(r"[-@](?:\d{8}|\d{4}-\d\d-\d\d)$")
_AGES: Final = ((365 * 86400, "y"), (30 * 86400, "mo"), (86400, "d"), (3600, "h"), (60, "min"))


def show_sessions(
    screen: Screen,
    rows: Sequence[ListedSession],
    every: Sequence[Summed],
    *,
    footnotes: bool = True,
) -> None:
    """Show ``rows``, which are some of ``every`` session of the store."""
    if not every:
        screen.line("The store holds no sessions yet; `eventctx import FILE` adds some.")
        return
    if not rows:
        screen.line(f"None of {plural(len(every), 'session')} fits.")
        return
    if screen.live:
        _on_terminal(screen, rows, every)
    else:
        _in_pipe(screen, rows)
    inferred = sum(row.reconstructed > 0 for row in rows)
    if inferred and footnotes:
        words = (
            f"Requests of {plural(inferred, 'session')} were reconstructed from imported files, "
            "which do not hold what was sent; `eventctx audit SESSION` says what is missing."
        )
        screen.line((words, "dim"))


def _in_pipe(screen: Screen, rows: Sequence[ListedSession]) -> None:
    screen.table(
        (
            Column("session"),
            Column("title"),
            Column("project"),
            Column("model"),
            Column("messages", right=True),
            Column("turns", right=True),
            Column("requests", right=True),
            Column("compactions", right=True),
            Column("tokens", right=True),
            Column("last record (UTC)"),
            Column("live"),
        ),
        [
            (
                one_line(_named(row)),
                one_line(row.title or "–"),
                one_line(row.project or "–"),
                one_line(row.model or "–"),
                number(row.messages),
                number(row.turns),
                number(row.requests),
                number(row.compactions),
                tokens(row.tokens, row.tokens_estimated),
                "–" if row.last is None else row.last[:19].replace("T", " "),
                "●" if row.live else "",
            )
            for row in rows
        ],
    )


def _on_terminal(screen: Screen, rows: Sequence[ListedSession], every: Sequence[Summed]) -> None:
    short = short_names(one.info.stream for one in every)
    last = {one.info.stream: one.sums.last for one in every}
    middle, wide = screen.width >= _MIDDLE, screen.width >= _WIDE
    columns = [
        Column("session", style="bold"),
        Column("title"),
        *([Column("project"), Column("model")] if middle else []),
        Column("requests" if wide else "reqs", right=True),
        Column("compactions" if wide else "comp", right=True),
        Column("tokens", right=True),
        Column("last (UTC)" if wide else "last", right=not wide),
    ]
    table = []
    for row in rows:
        when = row.last[:16].replace("T", " ") if wide and row.last else age(last[row.session])
        cells = [one_line(short[row.session]), one_line(_titled(row))]
        if middle:
            cells += [_cut(_folder(row.project), _MOST_PROJECT), _cut(_model(row), _MOST_MODEL)]
        cells += [number(row.requests), number(row.compactions)]
        cells += [_thousands(row), f"● {when}" if row.live else when]
        table.append(cells)
    from rich.cells import cell_len

    room = screen.width - sum(
        max([cell_len(column.title), *(cell_len(cells[place]) for cells in table)]) + 2
        for place, column in enumerate(columns)
        if place != _TITLE
    )
    for cells in table:
        cells[_TITLE] = _cut(cells[_TITLE], max(_LEAST_TITLE, room - 2))
    screen.table(columns, table)


def age(last: int) -> str:
    """How long ago a record was written, in the largest unit; a dash where no one knows."""
    if not last:
        return "–"
    seconds = (time.time_ns() - last) // 10**9
    for unit, name in _AGES:
        if seconds >= unit:
            return f"{seconds // unit} {name}"
    return "now"


def _thousands(row: ListedSession) -> str:
    if row.tokens is None or row.tokens < 1000:
        return tokens(row.tokens, row.tokens_estimated)
    return tokens(round(row.tokens / 1000), row.tokens_estimated) + "k"


def _folder(project: str | None) -> str:
    """The last part of a path, of whichever system."""
    folder = (project or "").rstrip("/\\").replace("\\", "/").rpartition("/")[2]
    return one_line(folder or "–")


def _model(row: ListedSession) -> str:
    """A model without its date, and without the name of who passes its requests on."""
    model = (row.model or "").rpartition("/")[2]
    return one_line(_DATE.sub("", model) or row.model or "–")


def _titled(row: ListedSession) -> str:
    title = row.title or "–"
    if row.parent is not None:
        return f"fork at {position_name(row.forked_at or 0)}: {title}"
    if row.belongs_to is not None:
        return f"{_role(row)}: {title}"
    return title


def _named(row: ListedSession) -> str:
    if row.parent is not None:
        return f"{row.session} (fork of {row.parent} {position_name(row.forked_at or 0)})"
    shown = row.belongs_to is None or row.session.startswith(row.belongs_to)
    return row.session if shown else f"{row.session} ({_role(row)} of {row.belongs_to})"


def _role(row: ListedSession) -> str:
    """The relation of a session to the one that it belongs to."""
    return {"branch": "branch", "transcript": "lines"}.get(row.link or "", "agent")


def _cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells of a terminal, with an ellipsis if it is cut."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…"
