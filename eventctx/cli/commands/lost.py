"""``lost``: what a view no longer shows of what was said and done."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from eventctx.cli.output import opening
from eventctx.cli.output.known import show_known
from eventctx.cli.output.lost_items import show_items
from eventctx.cli.output.lost_summary import answer
from eventctx.cli.output.program import run, spelling
from eventctx.cli.output.screen import Screen, put_document
from eventctx.cli.session_lists.default import session_or_last
from eventctx.queries.key_frames import figures_of

if TYPE_CHECKING:
    from eventctx.projections.figures import Figures
    from eventctx.queries.lost.answers import Lost

LIMIT = 10


@click.command("lost", short_help="What left the view: instructions, files, commands.")
@click.argument("session", required=False)
@click.option("--compaction", type=int, metavar="N", help="After the N-th applied compaction.")
@click.option("--turn", type=int, metavar="N", help="In the last request of turn N.")
@click.option("--all", "everything", is_flag=True, help="List what is whole, too.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=LIMIT,
    show_default=True,
    metavar="N",
    help="Rows of each kind.",
)
@opening.reading
def lost_command(
    session: str | None,
    compaction: int | None,
    turn: int | None,
    everything: bool,
    limit: int,
    store: str | None,
    as_json: bool,
) -> None:
    """List what is no longer in view of SESSION, now or after a compaction.

    Instructions of a person, files that were touched, commands and their failures, decisions of
    the model, and results that it used again. Each is whole, shortened (cut, but still there), in
    the summary (found in its text), or gone. "used again" counts later messages that needed it.
    Without SESSION: the last one that was compacted. JSON holds all items.
    """
    if compaction is not None and turn is not None:
        raise click.UsageError("expected at most one of --compaction and --turn, found both.")
    name, found, figures = run(_lost(session, compaction, turn, store))
    if as_json:
        put_document(found)
        return
    screen = Screen()
    screen.line((f"Lost in {name}. {answer(found)}", "bold"))
    show_items(screen, found, everything=everything, limit=limit)
    if found.messages.left:
        screen.blank()
        where = opening.as_option(store)
        command = f"{spelling()} why {shlex.quote(name)} NUMBER{where}"
        screen.line((f"`{command}` says why a message left and what stands for it.", "dim"))
    show_known(screen, figures)


async def _lost(
    session: str | None, compaction: int | None, turn: int | None, store: str | None
) -> tuple[str, Lost, Figures]:
    async with opening.existing(store) as engine:
        info = await session_or_last(engine, session, "compacted")
        found = await engine.lost(info.stream, compaction=compaction, turn=turn)
        return info.stream, found, await figures_of(engine.store, info.stream)
