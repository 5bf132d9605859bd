"""The output of commands: rich on a terminal, plain and uncut in a pipe, JSON on request."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from eventctx.queries.encoding import encode, indented
from eventctx.text import escape, escape_json

if TYPE_CHECKING:
    # Loaded when something is printed: the help of a command needs nothing of it.
    from rich.progress import Progress, TaskID
    from rich.table import Table
    from rich.text import Text

_PIPE_WIDTH: Final = 1_000_000
_PLAIN_STYLE: Final = ""
_PATIENCE: Final = 0.3
"""Seconds of work after which a progress bar appears."""


class Column(NamedTuple):
    """A column: its title; ``right`` for figures; ``fold`` for the one that may wrap."""

    title: str
    right: bool = False
    fold: bool = False
    style: str = _PLAIN_STYLE


class Screen:
    """The output of one command."""

    def __init__(self, json: bool = False) -> None:
        from rich.console import Console

        self.json = json
        self.console = Console(
            markup=False, highlight=False, emoji=False, soft_wrap=False, legacy_windows=False
        )
        self.live = self.console.is_terminal
        if not self.live:
            self.console.width = _PIPE_WIDTH

    @property
    def width(self) -> int:
        """Characters of a line; a million in a pipe, where nothing is cut."""
        return self.console.width

    def line(self, *parts: str | tuple[str, str] | Text, indent: int = 0) -> None:
        """One line of texts and ``(text, style)`` pairs; on a terminal it wraps at its indent."""
        text = styled(*parts)
        if not self.live:
            click.echo(" " * indent + text.plain.replace("\n", "\n" + " " * indent))
            return
        from rich.text import Text

        for wrapped in text.wrap(self.console, max(20, self.width - indent)):
            wrapped.rstrip()
            self.console.print(Text(" " * indent) + wrapped, soft_wrap=True)

    def whole(self, *parts: str | tuple[str, str]) -> None:
        """A line that this program never wraps, such as a command to copy or a receipt."""
        text = styled(*parts)
        if self.live:
            self.console.print(text, soft_wrap=True)
        else:
            click.echo(text.plain)

    def hanging(self, *parts: str | tuple[str, str], under: str) -> None:
        """A line whose continuations on a terminal begin with ``under``, as in a tree."""
        text = styled(*parts)
        if not self.live:
            click.echo(text.plain)
            return
        from rich.text import Text

        first, *rest = text.wrap(self.console, max(40, self.width - _cells(under)))
        for line in (first, *[Text(under, "dim") + line for line in rest]):
            line.rstrip()
            self.console.print(line, soft_wrap=True)

    def blank(self) -> None:
        """An empty line."""
        click.echo()

    def table(
        self,
        columns: Sequence[Column],
        rows: Sequence[Sequence[str]],
        notes: dict[int, Sequence[str | tuple[str, str]]] | None = None,
        *,
        header: bool = True,
    ) -> None:
        """A table. ``notes[i]`` is a line across all columns before row ``i``.

        Without its ``header`` it goes on with the rows of one before.
        """
        notes = notes or {}
        widths = [
            max([len(column.title), *(_cells(row[place]) for row in rows)])
            for place, column in enumerate(columns)
        ]
        if not self.live:
            self._plain_table(columns, rows, notes, widths, header=header)
            return
        if self._surplus(columns, widths) > 0:
            self._stacked(columns, rows, notes)
            return
        from rich.text import Text

        if header:
            self.console.print(self._grid(columns, widths, header=True))
            self.console.print(Text("─" * (sum(widths) + 2 * len(widths)), "dim"))
        start = 0
        for cut in sorted({*notes, len(rows)}):
            grid = self._grid(columns, widths, header=False)
            for place in range(start, min(cut, len(rows))):
                cells = [Text(cell) for cell in rows[place]]
                grid.add_row(*cells)
            if grid.row_count:
                self.console.print(grid)
            if cut in notes:
                self.line(*notes[cut], indent=1)
            start = cut

    def _surplus(self, columns: Sequence[Column], widths: list[int]) -> int:
        """Make the columns that may wrap narrower; the cells by which the table is still too wide.

        A table on the terminal has blanks at both sides of each column but for the last.
        """
        surplus = sum(widths) + 2 * len(widths) - self.width
        for place, column in enumerate(columns):
            if column.fold and surplus > 0:
                taken = min(surplus, max(0, widths[place] - 16))
                widths[place] -= taken
                surplus -= taken
        return surplus

    def _stacked(
        self,
        columns: Sequence[Column],
        rows: Sequence[Sequence[str]],
        notes: dict[int, Sequence[str | tuple[str, str]]],
    ) -> None:
        """Rows as paragraphs, on a terminal where they would be wider than a line: a figure that
        is broken in two is read as two."""
        for place, row in enumerate(rows):
            if place in notes:
                self.line(*notes[place], indent=1)
            self.line((row[0], "bold"), indent=1)
            parts = [
                f"{column.title} {cell}"
                for column, cell in zip(columns[1:], row[1:], strict=True)
                if cell.strip()
            ]
            self.line(" · ".join(parts), indent=3)
        if len(rows) in notes:
            self.line(*notes[len(rows)], indent=1)

    def _grid(self, columns: Sequence[Column], widths: Sequence[int], header: bool) -> Table:
        from rich.table import Table
        from rich.text import Text

        grid = Table(
            box=None,
            show_header=header,
            header_style="bold",
            padding=(0, 1),
            pad_edge=True,
            collapse_padding=False,
        )
        for column, width in zip(columns, widths, strict=True):
            grid.add_column(
                Text(column.title),
                justify="right" if column.right else "left",
                width=width,
                overflow="fold",
                style=column.style,
            )
        return grid

    def _plain_table(
        self,
        columns: Sequence[Column],
        rows: Sequence[Sequence[str]],
        notes: dict[int, Sequence[str | tuple[str, str]]],
        widths: Sequence[int],
        *,
        header: bool,
    ) -> None:
        def put(cells: Sequence[str]) -> None:
            shown = [
                cell.rjust(width) if column.right else cell.ljust(width)
                for column, cell, width in zip(columns, cells, widths, strict=True)
            ]
            click.echo("  ".join(shown).rstrip())

        if header:
            put([column.title for column in columns])
        for place, row in enumerate(rows):
            if place in notes:
                click.echo(styled(*notes[place]).plain)
            put(row)
        if len(rows) in notes:
            click.echo(styled(*notes[len(rows)]).plain)


def _cells(text: str) -> int:
    from rich.text import Text

    return Text(text).cell_len


def styled(*parts: str | tuple[str, str] | Text) -> Text:
    """Texts and ``(text, style)`` pairs as one; contents are escaped and never markup."""
    from rich.text import Text

    text = Text()
    for part in parts:
        if isinstance(part, Text):
            text.append_text(part)
        elif isinstance(part, tuple):
            text.append(escape(part[0]), part[1])
        else:
            text.append(escape(part))
    return text


def put_json(value: Any) -> None:
    """One JSON document on a line of its own: stable keys, UTF-8, no colours."""
    put(encode(value) + b"\n")


def put_document(value: Any) -> None:
    """The one JSON document of a command, indented for a reader."""
    put(indented(value) + b"\n")


class JsonRows:
    """A list as ``put_document`` prints it, row by row: however long it is, a row is held."""

    def __init__(self) -> None:
        self._count = 0

    def put(self, row: Any) -> None:
        """Print the next row."""
        before = b",\n  " if self._count else b"[\n  "
        # A line end inside a text is written as \n, so these are the layout's own.
        put(before + indented(row).replace(b"\n", b"\n  "))
        self._count += 1

    def end(self) -> None:
        """Print the end of the list."""
        put(b"\n]\n" if self._count else b"[]\n")


def put(document: bytes) -> None:
    """JSON on standard output: byte for byte in a pipe or a file, escaped on a terminal.

    A terminal would obey control characters inside strings, and hide what has no width.
    """
    if sys.stdout.isatty():
        text = document.decode("utf-8", "surrogateescape")
        document = escape_json(text).encode("utf-8")
    click.echo(document, nl=False)


class Bar:
    """A progress bar that appears when the work takes long; without a terminal, never.

    A timer shows it, in a thread of its own, so that it also appears while the work blocks.
    """

    def __init__(self, progress: Progress | None, task: TaskID | None) -> None:
        self._progress = progress
        self._task = task
        self._lock = threading.Lock()
        self._over = self._shown = False
        self._timer = threading.Timer(_PATIENCE, self._show)
        self._timer.daemon = True
        if progress is not None:
            self._timer.start()

    def _show(self) -> None:
        with self._lock:
            if self._progress is not None and not self._over:
                self._progress.start()
                self._shown = True

    def close(self) -> None:
        """Take the bar away."""
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._progress is not None and self._shown:
                self._progress.stop()

    def at(self, done: int, total: int | None = None) -> None:
        """Show that ``done`` units of the work are complete."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)

    def name(self, text: str) -> None:
        """Show the name of the present piece of work."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=escape(text))


@contextmanager
def progress(text: str, total: int | None = None) -> Iterator[Bar]:
    """A progress bar on stderr, only if that is a terminal; it goes away at the end."""
    from rich.console import Console

    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield Bar(None, None)
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    shown = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn() if total is not None else TextColumn("", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    bar = Bar(shown, shown.add_task(escape(text), total=total))
    try:
        yield bar
    finally:
        bar.close()
