"""``search``: find messages, in every session or in one, whether or not a view shows them."""

from __future__ import annotations

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import minute_or, one_line, plural
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import Screen, put_document
from eventctx.log.naming import message_name
from eventctx.search.found import Found, found_answers, found_by
from eventctx.search.recall import Recalled


@click.command("search", short_help="Find what was said, in view or not.")
@click.argument("query", nargs=-1, required=True)
@click.option("--session", metavar="SESSION", help="Only in this session, forks' pasts included.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=10,
    show_default=True,
    metavar="N",
    help="At most so many messages.",
)
@opening.reading
def search_command(
    query: tuple[str, ...], session: str | None, limit: int, store: str | None, as_json: bool
) -> None:
    """Find the messages that match QUERY best.

    Words, "quoted phrases" and prefix* are understood, everything else is literal. Messages with
    all the words are found; if there are none, messages with any of them. The number behind # is
    the message's: `eventctx why SESSION NUMBER` says whether a model is still shown it.
    """
    found, undated = run(_found(" ".join(query), session, limit, store))
    if as_json:
        put_document(found_answers((found, undated)))
    else:
        _show(Screen(), found, undated)


async def _found(query: str, session: str | None, limit: int, store: str | None) -> Found:
    async with opening.existing(store) as engine:
        name = None
        if session is not None:
            name = (await opening.find_session(engine.store, session)).stream
        return await found_by(engine.store, engine.recaller(), query, name, limit)


def _show(screen: Screen, found: list[Recalled], undated: dict[str, int | None]) -> None:
    for one in found:
        screen.line(
            (f"{one.session} {message_name(one.number)} ", "bold"),
            (f"{one.role}, {minute_or(one.time, undated.get(one.session))}", "dim"),
        )
        screen.line(one_line(one.snippet), indent=2)
    screen.line((plural(len(found), "message"), "bold") if found else "Nothing matches.")
