"""``lost``: a person's messages that a view does not show any more."""

from __future__ import annotations

from typing import Any, Final

import click

from eventctx.cli.output import opening
from eventctx.cli.output.messages import role_of, snippet
from eventctx.cli.output.numbers import request_in_words, runs_in_words
from eventctx.cli.output.plain import plural
from eventctx.cli.output.program import run
from eventctx.cli.output.rulings import place_in_words, ruling_json
from eventctx.cli.output.screen import Screen, put_document
from eventctx.queries.explain.answers import Explanation

_BEGINNING: Final = 160

_HOW: Final = {
    "summarised": "summarised",
    "dropped": "dropped",
    "merged": "merged",
    "omitted": "left out: results in it answer no call in view",
    "set": "taken out of the transcript by a set",
    "cleared": "taken out of the transcript by a clear",
}


@click.command("lost", short_help="A person's messages that are in view no more.")
@click.argument("session")
@click.option("--turn", type=int, metavar="N", help="In the last request of turn N.")
@opening.reading
def lost_command(session: str, turn: int | None, store: str | None, as_json: bool) -> None:
    """List the user's own messages of SESSION that the view does not show, and why.

    Without --turn it is about the view as it stands now. What a harness wrote in the user's role
    is not among them; a message that is in view shortened is not lost.
    """
    name, found = run(_lost(session, turn, store))
    if as_json:
        put_document([_as_json(one) for one in found])
    else:
        _show(Screen(), name, found, turn)


async def _lost(
    session: str, turn: int | None, store: str | None
) -> tuple[str, tuple[Explanation, ...]]:
    async with opening.existing(store) as engine:
        info = await opening.find_session(engine, session)
        return info.stream, await engine.lost(info.stream, turn)


def _show(screen: Screen, name: str, found: tuple[Explanation, ...], turn: int | None) -> None:
    for one in found:
        head = f"#{one.number} "
        width = max(20, screen.width - len(head)) if screen.live else _BEGINNING
        screen.line((head, "bold"), (snippet(one.message, width), "green"))
        screen.line((_why(one), "dim"), indent=2)
    where = request_in_words(turn, None, None) if turn is None else f"turn {turn}"
    if turn is not None and found:
        where = request_in_words(found[0].turn, found[0].iteration, found[0].position)
    if found:
        lost = plural(len(found), "message of a person", "messages of a person")
        screen.line((f"{lost} not shown in {where}; ", "bold"), f"`why {name} NUMBER` says more.")
    else:
        screen.line(f"Nothing that a person said is missing from {where}.")


def _why(one: Explanation) -> str:
    text = _HOW.get(one.standing, one.standing)
    if one.ruling is not None:
        text += f" since {place_in_words(one.ruling.cause)}"
        text += f": {one.ruling.rule}" if one.ruling.rule else ""
    if one.into is not None:
        return f"{text}; #{one.into} begins as it does"
    if not one.stands_in:
        return f"{text}; nothing stands for it"
    places = ", ".join(f"the {it.kind} at position {it.position}" for it in one.stands_in)
    return f"{text}; {places} stands for {runs_in_words(one.stands_in[0].stands_for)}"


def _as_json(one: Explanation) -> dict[str, Any]:
    return {
        "session": one.session,
        "number": one.number,
        "role": None if one.message is None else role_of(one.message),
        "beginning": snippet(one.message, _BEGINNING),
        "position": one.position,
        "turn": one.turn,
        "iteration": one.iteration,
        "standing": one.standing,
        "ruling": ruling_json(one.ruling),
        "merged_into": one.into,
        "summary": next((it.position for it in one.stands_in if it.kind == "summary"), None),
        "message": one.message,
    }
