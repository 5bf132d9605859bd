"""``sessions``: the sessions of a store."""

from __future__ import annotations

import click

from eventctx.cli.output import opening
from eventctx.cli.output.passed_over import tell
from eventctx.cli.output.plain import minute, number, one_line, plural
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import Column, Screen, progress, put_document
from eventctx.documents.sessions import SessionRow, session_row
from eventctx.documents.unread import Unread
from eventctx.log.naming import position_name

_BUSY = 20


@click.command("sessions", short_help="The sessions of the store.")
@opening.reading
def sessions_command(store: str | None, as_json: bool) -> None:
    """List the sessions of the store, in the order in which they were made."""
    run(_sessions(store, as_json))


async def _sessions(store: str | None, as_json: bool) -> None:
    rows: list[SessionRow] = []
    times: list[int] = []
    unread = Unread()
    async with opening.existing(store) as engine:
        infos = await engine.sessions()
        with progress("Reading sessions", len(infos) if len(infos) > _BUSY else None) as bar:
            for done, info in enumerate(infos, 1):
                row, last = await session_row(engine, info, unread)
                rows.append(row)
                times.append(last)
                bar.at(done)
    if as_json:
        put_document(rows)
    else:
        _show_rows(Screen(), rows, times)
    tell(unread)


def _show_rows(screen: Screen, rows: list[SessionRow], times: list[int]) -> None:
    if not rows:
        screen.line("The store holds no sessions yet; `eventctx import FILE` adds some.")
        return
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
    )
    inferred = sum(row.reconstructed > 0 for row in rows)
    if inferred:
        words = (
            f"Requests of {plural(inferred, 'session')} were reconstructed by an importer; "
            "`audit SESSION` says what is not known of them."
        )
        screen.line((words, "dim"))


def _named(row: SessionRow) -> str:
    if row.parent is not None:
        return f"{row.session} (fork of {row.parent} {position_name(row.forked_at or 0)})"
    shown = row.belongs_to is None or row.session.startswith(row.belongs_to)
    role = "branch" if row.link == "branch" else "agent"
    return row.session if shown else f"{row.session} ({role} of {row.belongs_to})"
