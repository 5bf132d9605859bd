"""``sessions``: the sessions of a store."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from eventctx.cli.output import opening
from eventctx.cli.output.passed_over import tell
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import JsonRows, Screen, progress
from eventctx.cli.session_lists.table import show_sessions
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.session_list import (
    ListedSession,
    Order,
    Summed,
    listed_sessions,
    ordered,
    summed_sessions,
)

if TYPE_CHECKING:
    from eventctx.engine import Engine

_ORDERS: Final[tuple[Order, ...]] = get_args(Order)


@click.command("sessions", short_help="The sessions of the store, the last used first.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many.")
@click.option(
    "--sort",
    type=click.Choice(_ORDERS),
    help="By last activity (the default), by creation (the first one first), or the largest first.",
)
@click.option("--project", metavar="TEXT", help="Only those whose project folder holds this text.")
@click.option(
    "--grep", metavar="TEXT", help="Only those with this text in title, project, model or name."
)
@click.option(
    "--after",
    metavar="SESSION",
    help="Only those that were made after this one, in that order: the next page.",
)
@opening.reading
def sessions_command(
    limit: int | None,
    sort: Order | None,
    project: str | None,
    grep: str | None,
    after: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """List the sessions of the store, the last used first.

    A title is that of the imported file, else the first words of a person. Model and tokens are
    those of the last request; ~ marks an estimate. ● marks a session that is in use: its last
    record is less than five minutes old. Every command takes the first letters of a session's name.
    """
    if after is not None and sort not in (None, "made"):
        raise click.UsageError("--after goes on in the order of creation: use it with --sort made.")
    chosen: Order = "made" if after is not None else sort or "last"
    run(_sessions(after, limit, chosen, project, grep, store, as_json))


async def _sessions(
    after: str | None,
    limit: int | None,
    order: Order,
    project: str | None,
    grep: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    errors = ReadErrors()
    async with opening.existing(store) as engine:
        with progress("Reading sessions") as bar:
            every = await summed_sessions(engine.store, errors, bar.at)
        chosen = ordered(every, order)
        if after is not None:
            chosen = await _behind(engine, chosen, after)
        rows: Any = listed_sessions(engine.store, chosen, project=project, grep=grep, limit=limit)
        async with aclosing(rows):
            if as_json:
                document = JsonRows()
                async for row in rows:
                    document.put(row)
                document.end()
            else:
                shown: list[ListedSession] = [row async for row in rows]
                show_sessions(Screen(), shown, every)
    tell(errors)


async def _behind(engine: Engine, sessions: list[Summed], after: str) -> list[Summed]:
    name = (await opening.find_session(engine.store, after)).stream
    names = [one.info.stream for one in sessions]
    return sessions[names.index(name) + 1 :]
