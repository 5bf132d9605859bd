"""``fork``: a new session that begins as another one was at some point."""

from __future__ import annotations

import click

from eventctx.cli.output import opening
from eventctx.cli.output.numbers import position
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import Screen, put_document
from eventctx.log.naming import position_name


@click.command("fork", short_help="A new session from a point of another one.")
@click.argument("session")
@click.argument("new")
@click.option(
    "--at",
    type=position,
    required=True,
    metavar="POSITION",
    help="Everything up to here is shared.",
)
@opening.reading
def fork_command(session: str, new: str, at: int, store: str | None, as_json: bool) -> None:
    """Make the session NEW as SESSION was after a position, without copying anything."""
    run(_fork(session, new, at, store, as_json))


async def _fork(session: str, new: str, at: int, store: str | None, as_json: bool) -> None:
    async with opening.existing(store) as engine:
        info = await opening.find_session(engine.store, session)
        receipt = await engine.fork(info.stream, at, new)
        messages = len(await engine.transcript(new))
    if as_json:
        put_document(
            {
                "session": new,
                "parent": info.stream,
                "at": at,
                "messages": messages,
                "receipt": str(receipt),
            }
        )
        return
    screen = Screen()
    screen.line(
        "forked ", (info.stream, "bold"), f" {position_name(at)} as ", (new, "bold"),
        f": {messages} messages, nothing copied",
    )  # fmt: skip
    screen.whole(("receipt ", "dim"), str(receipt))
