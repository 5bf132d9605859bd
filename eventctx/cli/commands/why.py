"""``why``: whether a message is in a view, and by which decision, rule and setting."""

from __future__ import annotations

import shlex
from typing import Any, Final

import click

from eventctx.cli.output import opening
from eventctx.cli.output.known import show_known
from eventctx.cli.output.messages import role_of, role_style, shown_parts, snippet
from eventctx.cli.output.numbers import (
    message_number,
    one_request,
    position,
    request,
    request_in_words,
)
from eventctx.cli.output.plain import one_line
from eventctx.cli.output.program import run, spelling
from eventctx.cli.output.rulings import (
    cause_in_words,
    fact,
    place_in_words,
    rule_in_words,
    settings_in_words,
)
from eventctx.cli.output.screen import Screen, put_document
from eventctx.documents.why import why_document
from eventctx.log.naming import RequestName, message_name, position_name, ranges_name
from eventctx.projections.explain.why import Reason
from eventctx.projections.figures import Figures
from eventctx.queries.explain.answers import Explanation, StandIn
from eventctx.queries.figures import figures_of

BEGINNING: Final = 400
"""Characters of a summary or notice that are shown, in a pipe or on a terminal of any width."""

_VERDICTS: Final = {
    "whole": "in view, whole",
    "shortened": "in view, shortened",
    "summarised": "not in view: summarised by a compaction",
    "dropped": "not in view: dropped by a compaction",
    "merged": "not in view: merged by a compaction with a message that says the same",
    "omitted": "not in view: a tool result that answers no call in view",
    "replaced": "not in view: the host's own system prompt takes its place",
    "set": "not in view: a set took it out of the transcript",
    "cleared": "not in view: the transcript was cleared",
    "not_added": "not in view: it was added only later",
}

_COME_BACK: Final = ("summarised", "dropped", "merged", "shortened")
"""Standings of messages that ``restore`` brings back."""


@click.command("why", short_help="Why a message was in a view, or was not.")
@click.argument("session")
@click.argument("message", metavar="MESSAGE", type=message_number)
@click.option(
    "--turn", type=request, metavar="N[.I]", help="In the last request of turn N, or in N.I."
)
@click.option("--iteration", type=int, metavar="I", help="In the request of this iteration.")
@click.option(
    "--position",
    type=position,
    metavar="P",
    help="Instead: in the request prepared at this position.",
)
@opening.reading
def why_command(
    session: str,
    message: int,
    turn: RequestName | None,
    iteration: int | None,
    position: int | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Say why MESSAGE of SESSION is in the view or not: which compaction, rule and setting.

    MESSAGE is a message's number, as in `#12`; positions are those of records, as in `@48`
    (docs/reference/numbers-and-positions.md). Without options it is about the view as it stands
    now.
    """
    if turn is not None and position is not None:
        raise click.UsageError("Expected at most one of --turn and --position.")
    name = one_request(turn, iteration, position)
    answer, mirror, figures = run(_why(session, message, name, store))
    undated = figures.file.undated
    if as_json:
        put_document(why_document(answer, undated))
    else:
        _show(Screen(), answer, undated)
        _show_way_back(Screen(), answer, store, mirror)
        show_known(Screen(), figures)


async def _why(
    session: str, message: int, name: RequestName, store: str | None
) -> tuple[Explanation, str | None, Figures]:
    """The answer, the name of the file that the session mirrors (None for one of ours), figures."""
    async with opening.existing(store) as engine:
        info = await opening.find_session(engine, session)
        answer = await engine.why(info.stream, message, **name._asdict())
        comes_back = answer.standing in _COME_BACK
        mirror = await engine.mirror_of(info.stream) if comes_back else None
        return answer, mirror, await figures_of(engine.store, info.stream)


def _show(screen: Screen, answer: Explanation, undated: int | None) -> None:
    colour = "bold green" if answer.in_view else "bold red"
    where = request_in_words(answer.turn, answer.iteration, answer.position)
    screen.line(
        (f"{message_name(answer.number)} of {answer.session}: ", "bold"),
        (_VERDICTS[answer.standing], colour),
        (f" · {where}", "dim"),
    )
    message = answer.message
    role = "erased" if message is None else role_of(message)
    width = max(20, screen.width - len(role) - 2) if screen.live else BEGINNING
    if answer.standing != "not_added":
        screen.line((role, role_style(role)), f"  {snippet(message, width)}")
    screen.blank()
    if answer.standing not in ("whole", "not_added"):
        _show_ruling(screen, answer, undated)
    _show_view(screen, answer)
    _show_history(screen, answer, undated)


def _show_way_back(
    screen: Screen, answer: Explanation, store: str | None, mirror: str | None
) -> None:
    if answer.standing not in _COME_BACK:
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


def _show_ruling(screen: Screen, answer: Explanation, undated: int | None) -> None:
    """Show the record that took a message out or shortened it, and its replacement."""
    ruling = answer.ruling
    if answer.standing == "omitted":
        fact(screen, "because", _uncalled(answer))
    if ruling is not None:
        fact(screen, "by", cause_in_words(ruling.cause, undated))
        if ruling.cause.compaction is not None:
            _show_rule(screen, ruling)
    if answer.standing == "shortened":
        fact(screen, "instead", *_shortened(answer))
        return
    for stand_in in answer.stands_in:
        fact(screen, "instead", *_standing_for(stand_in))
    if answer.into is not None:
        gone = "" if answer.into_in_view else ", and is in view no more itself"
        fact(
            screen, "instead", f"message {message_name(answer.into)}, which begins as it does{gone}"
        )
    elif not answer.stands_in:
        fact(screen, "instead", _nothing(answer))
    if ruling is not None:
        fact(screen, "since", place_in_words(ruling.cause))


def _show_rule(screen: Screen, ruling: Reason) -> None:
    fact(screen, "rule", rule_in_words(ruling))
    fact(screen, "settings", settings_in_words(ruling))


def _uncalled(answer: Explanation) -> str:
    if answer.caller is None:
        return "no message before it makes the call that it answers"
    if answer.ruling is not None:
        return f"the call that it answers, in {message_name(answer.caller)}, is not in view"
    return f"the call in {message_name(answer.caller)} has another result already"


def _shortened(answer: Explanation) -> list[str | tuple[str, str]]:
    if answer.shows is None:
        return ["the shortened text, which was erased since"]
    whole, left = _characters(answer.message), _characters(answer.shows)
    sizes = f"{left:,} of {whole:,} characters: " if whole else ""
    return [sizes, (f"“{one_line(snippet(answer.shows, BEGINNING))}”", "italic")]


def _characters(message: dict[str, Any] | None) -> int:
    return 0 if message is None else sum(len(part.text) for part in shown_parts(message))


def _standing_for(one: StandIn) -> list[str | tuple[str, str]]:
    runs = ranges_name(one.stands_for)
    return [
        f"the {one.kind} {position_name(one.position)}, for {runs}: ",
        (f"“{snippet(one.message, BEGINNING)}”", "italic"),
    ]


def _nothing(answer: Explanation) -> str:
    if answer.standing == "summarised":
        return "nothing: the summary that stood for it has left the view, too"
    if answer.standing == "replaced":
        return "the host's own system prompt, which leads the view"
    return "nothing"


def _show_view(screen: Screen, answer: Explanation) -> None:
    """Show why a message that is in view stays, and which parts of it are left out."""
    if answer.in_view:
        _show_stay(screen, answer)
    if answer.results_left_out:
        left_out = ", ".join(answer.results_left_out)
        fact(screen, "without", f"results that answer no call in view: {left_out}")
    if answer.stripped is not None:
        fact(
            screen,
            "without",
            "its thinking, which a provider binds to what precedes it; that was changed by "
            f"{cause_in_words(answer.stripped.cause)}",
        )


def _show_stay(screen: Screen, answer: Explanation) -> None:
    stays, planned = answer.stays, answer.planned
    if stays is not None:
        fact(screen, "stays", f"so decided by {cause_in_words(stays.cause)}")
        _show_rule(screen, stays)
    elif planned is None:
        fact(screen, "stays", "no compaction is in force, so all of the transcript is in view")
    elif answer.restored is not None:
        fact(screen, "stays", "it was brought back after the last compaction")
    else:
        last = place_in_words(planned)
        fact(screen, "stays", f"it was added after the last compaction, which is at {last}")


def _show_history(screen: Screen, answer: Explanation, undated: int | None) -> None:
    if answer.added is not None:
        fact(screen, "added", cause_place(answer, undated))
    if answer.standing == "not_added":
        return
    if answer.restored is not None:
        again = "" if answer.in_view else ", and was taken out again since"
        fact(screen, "restored", f"{cause_in_words(answer.restored)}{again}")
    if answer.erased is not None:
        fact(screen, "erased", cause_in_words(answer.erased))
    pin = f", by {cause_in_words(answer.pinned_by)}" if answer.pinned_by is not None else ""
    fact(screen, "pinned", f"yes{pin}" if answer.pinned else "no")


def cause_place(answer: Explanation, undated: int | None = None) -> str:
    """Where and when a message was added."""
    assert answer.added is not None  # noqa: S101 - tells the type checker
    return cause_in_words(answer.added, undated).partition(" at ")[2]
