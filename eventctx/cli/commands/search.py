"""``search``: find messages, in every session or in one, whether or not a view shows them."""

from __future__ import annotations

from typing import Any

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import iso_or, minute_or, one_line, plural
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import Screen, put_document
from eventctx.engine import Engine
from eventctx.log.naming import message_name
from eventctx.projections import figures
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
        put_document([_as_json(one, undated.get(one.session)) for one in found])
    else:
        _show(Screen(), found, undated)


_Found = tuple[list[Recalled], dict[str, int | None]]
"""Messages, and the time in each session of records that the imported file has no time of."""


async def _found(query: str, session: str | None, limit: int, store: str | None) -> _Found:
    async with opening.existing(store) as engine:
        name = None
        if session is not None:
            name = (await opening.find_session(engine, session)).stream
        found = await engine.recall(query, name, limit)
        sessions = {one.session for one in found}
        return found, {one: await _undated(engine, one) for one in sessions}


async def _undated(engine: Engine, session: str) -> int | None:
    """The time of the records of an imported file that has none: that of its import."""
    state = figures.initial()
    async for record in engine.records(session, 0, 0):
        state = figures.evolve(state, record)
    return figures.read(state).file.undated


def _show(screen: Screen, found: list[Recalled], undated: dict[str, int | None]) -> None:
    for one in found:
        screen.line(
            (f"{one.session} {message_name(one.number)} ", "bold"),
            (f"{one.role}, {minute_or(one.time, undated.get(one.session))}", "dim"),
        )
        screen.line(one_line(one.snippet), indent=2)
    screen.line((plural(len(found), "message"), "bold") if found else "Nothing matches.")


def _as_json(one: Recalled, undated: int | None) -> dict[str, Any]:
    return {
        "session": one.session,
        "name": message_name(one.number),
        "number": one.number,
        "position": one.position,
        "role": one.role,
        "time": iso_or(one.time, undated),
        "score": one.score,
        "snippet": one.snippet,
        "message": one.message,
    }
