"""``why``: whether a message is in a view, and by which decision, rule and setting."""

from __future__ import annotations

import shlex

import click

from eventctx.cli.output import opening
from eventctx.cli.output.figures import figures_of, show_known
from eventctx.cli.output.messages import real_speaker, role_of, role_style, snippet
from eventctx.cli.output.opening import message_number, request_in_words
from eventctx.cli.output.program import run, spelling
from eventctx.cli.output.reasons import BEGINNING, fact, facts_of, presence_in_words
from eventctx.cli.output.screen import Screen, put_document
from eventctx.log.naming import RequestName, message_name
from eventctx.projections.figures import Figures
from eventctx.projections.presence import Presence
from eventctx.queries.explain_answers import Explanation, why_answer


@click.command("why", short_help="Why a message was in a view, or was not.")
@click.argument("session")
@click.argument("message", metavar="MESSAGE", type=message_number)
@opening.one_request
@opening.reading
def why_command(
    session: str,
    message: int,
    name: RequestName,
    store: str | None,
    as_json: bool,
) -> None:
    """Say why MESSAGE of SESSION is in the view or not: which compaction, rule and setting.

    MESSAGE is a message's number, as in `#12`; positions are those of records, as in `@48`
    (docs/reference/numbers-and-positions.md). Without options it is about the view as it stands
    now.
    """
    answer, mirror, figures = run(_why(session, message, name, store))
    undated = figures.file.undated
    if as_json:
        put_document(why_answer(answer, undated))
    else:
        _show(Screen(), answer, undated)
        _show_way_back(Screen(), answer, store, mirror)
        show_known(Screen(), figures)


async def _why(
    session: str, message: int, name: RequestName, store: str | None
) -> tuple[Explanation, str | None, Figures]:
    """The answer, the name of the file that the session mirrors (None for one of ours), figures."""
    from eventctx.queries.explaining import why

    async with opening.answering(store) as reader:
        info = await opening.find_session(reader.store, session)
        answer = await why(reader.store, info.stream, message, name)
        comes_back = answer.standing.restorable
        mirror = await reader.mirror_of(info.stream) if comes_back else None
        return answer, mirror, await figures_of(reader.store, info.stream)


def _show(screen: Screen, answer: Explanation, undated: int | None) -> None:
    colour = "bold green" if answer.in_view else "bold red"
    where = request_in_words(answer.turn, answer.iteration, answer.position)
    screen.line(
        (f"{message_name(answer.number)} of {answer.session}: ", "bold"),
        (presence_in_words(answer), colour),
        (f" · {where}", "dim"),
    )
    message = answer.message
    role = "erased" if message is None else role_of(message)
    speaker = real_speaker(message)
    width = max(20, screen.width - len(role + speaker) - 2) if screen.live else BEGINNING
    if answer.standing is not Presence.NOT_ADDED:
        screen.line((role, role_style(role)), (speaker, "dim"), f"  {snippet(message, width)}")
    screen.blank()
    for one in facts_of(answer, undated):
        fact(screen, one.label, *one.parts)


def _show_way_back(
    screen: Screen, answer: Explanation, store: str | None, mirror: str | None
) -> None:
    if not answer.standing.restorable:
        return
    screen.blank()
    command = f"{spelling()} restore {shlex.quote(answer.session)} {answer.number}"
    if mirror is None:
        screen.line(("To have it back whole, until the next compaction (--pin: for good):", "dim"))
    else:
        which = f"To have it back whole in a fork, since this session is a mirror of {mirror}:"
        screen.line((which, "dim"))
        command += " --fork NAME"
    screen.whole(f"{command}{opening.as_option(store)}")
