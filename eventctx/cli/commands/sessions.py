"""``sessions``: the sessions of a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import click

from eventctx.cli.output import opening
from eventctx.cli.output.passed_over import tell
from eventctx.cli.output.plain import minute, number, one_line, plural
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import Bar, Column, JsonRows, Screen, progress
from eventctx.documents.sessions import SessionRow, TimedRow, session_row
from eventctx.documents.unread import Unread
from eventctx.engine import Engine
from eventctx.log.naming import position_name

_TOGETHER: Final = 1_000
"""Rows that a person sees lined up with each other."""


@click.command("sessions", short_help="The sessions of the store.")
@click.option(
    "--after", metavar="SESSION", help="Only those that were made after this one: the next page."
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many: a page.")
@opening.reading
def sessions_command(
    after: str | None, limit: int | None, store: str | None, as_json: bool
) -> None:
    """List the sessions of the store, in the order in which they were made.

    They are read and printed as they come, so any number of them takes the same memory.
    """
    run(_sessions(after, limit, store, as_json))


async def _sessions(after: str | None, limit: int | None, store: str | None, as_json: bool) -> None:
    unread = Unread()
    async with opening.existing(store) as engine:
        if after is not None:
            after = (await opening.find_session(engine, after)).stream
        found: Any = _rows(engine, after, limit, unread)
        async with aclosing(found):
            if as_json:
                await _print(found)
            else:
                await _show(found)
    tell(unread)


async def _rows(
    engine: Engine, after: str | None, limit: int | None, unread: Unread
) -> AsyncIterator[TimedRow]:
    left = limit
    async for info in engine.each_session(after=after):
        yield await session_row(engine, info, unread)
        left = None if left is None else left - 1
        if left == 0:
            return


async def _print(found: AsyncIterator[TimedRow]) -> None:
    rows = JsonRows()
    async for timed in found:
        rows.put(timed.row)
    rows.end()


async def _show(found: AsyncIterator[TimedRow]) -> None:
    with progress("Reading sessions") as bar:
        table = _Table(Screen(), bar)
        async for timed in found:
            table.put(timed)
        table.end()


class _Table:
    """The rows for a person, a table as soon as there are enough of them to line up."""

    def __init__(self, screen: Screen, bar: Bar) -> None:
        self._screen = screen
        self._bar = bar
        self._rows: list[SessionRow] = []
        self._times: list[int] = []
        self._count = self._inferred = 0

    def put(self, timed: TimedRow) -> None:
        """Take the next session."""
        self._rows.append(timed.row)
        self._times.append(timed.last)
        if len(self._rows) == _TOGETHER:
            self._show()

    def end(self) -> None:
        """Show what is left, and what is to be said of all."""
        self._bar.close()
        if self._rows:
            self._show()
        if not self._count:
            text = "The store holds no sessions yet; `eventctx import FILE` adds some."
            self._screen.line(text)
        if self._inferred:
            words = (
                f"Requests of {plural(self._inferred, 'session')} were reconstructed by an "
                "importer; `audit SESSION` says what is not known of them."
            )
            self._screen.line((words, "dim"))

    def _show(self) -> None:
        self._bar.close()  # it would stand in the middle of the table
        _show_rows(self._screen, self._rows, self._times, header=not self._count)
        self._count += len(self._rows)
        self._inferred += sum(row.reconstructed > 0 for row in self._rows)
        self._rows, self._times = [], []


def _show_rows(screen: Screen, rows: list[SessionRow], times: list[int], *, header: bool) -> None:
    narrow = screen.live and screen.width < 110
    columns = (
        Column("session", fold=True, style="bold"),
        Column("msgs" if narrow else "messages", right=True),
        Column("turns", right=True),
        Column("reqs" if narrow else "requests", right=True),
        Column("comp" if narrow else "compactions", right=True),
        Column("last (UTC)" if narrow else "last record (UTC)"),
    )
    screen.table(
        columns,
        [
            (
                one_line(_named(row)),
                number(row.messages),
                number(row.turns),
                number(row.requests),
                number(row.compactions),
                minute(last)[: 10 if narrow else None] if last else "–",
            )
            for row, last in zip(rows, times, strict=True)
        ],
        header=header,
    )


def _named(row: SessionRow) -> str:
    if row.parent is not None:
        return f"{row.session} (fork of {row.parent} {position_name(row.forked_at or 0)})"
    shown = row.belongs_to is None or row.session.startswith(row.belongs_to)
    role = "branch" if row.link == "branch" else "agent"
    return row.session if shown else f"{row.session} ({role} of {row.belongs_to})"
